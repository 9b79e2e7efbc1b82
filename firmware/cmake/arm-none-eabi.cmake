# Cross toolchain. The one place that knows which compiler flags a (HIL_CPU, HIL_ISA) pair means.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HIL_CPU HIL_ISA)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# What GCC calls the CPU and its floating-point unit, before the ISA class is looked at.
set(hil_fpu_cortex-m0 -mfloat-abi=soft)
set(hil_fpu_cortex-m0plus -mfloat-abi=soft)
set(hil_fpu_cortex-m3 -mfloat-abi=soft)
set(hil_fpu_cortex-m23 -mfloat-abi=soft)
set(hil_fpu_cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16)
set(hil_fpu_cortex-m7 -mfloat-abi=hard -mfpu=fpv4-sp-d16)
set(hil_fpu_cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16)
set(hil_fpu_cortex-m55 -mfloat-abi=hard)
set(hil_fpu_cortex-m85 -mfloat-abi=hard)

# The ISA classes each CPU can be built for; the extensions to leave out for the lesser ones.
set(hil_ext_cortex-m0_SCALAR "")
set(hil_ext_cortex-m0plus_SCALAR "")
set(hil_ext_cortex-m3_SCALAR "")
set(hil_ext_cortex-m23_SCALAR "")
set(hil_ext_cortex-m4_DSP "")
set(hil_ext_cortex-m4_SCALAR "")  # GCC cannot take the DSP extension from a Cortex-M4 or M7
set(hil_ext_cortex-m7_DSP "")
set(hil_ext_cortex-m7_SCALAR "")
set(hil_ext_cortex-m33_DSP "")
set(hil_ext_cortex-m33_SCALAR "+nodsp")
set(hil_ext_cortex-m55_MVE "")
set(hil_ext_cortex-m55_DSP "+nomve")
set(hil_ext_cortex-m55_SCALAR "+nomve+nodsp")
set(hil_ext_cortex-m85_MVE "")
set(hil_ext_cortex-m85_DSP "+nomve")
set(hil_ext_cortex-m85_SCALAR "+nomve+nodsp")

if(NOT DEFINED hil_ext_${HIL_CPU}_${HIL_ISA})
  message(FATAL_ERROR "no compiler flags for HIL_CPU=${HIL_CPU} HIL_ISA=${HIL_ISA}")
endif()

set(hil_gcc_cpu ${HIL_CPU})
if(HIL_CPU STREQUAL "cortex-m85")
  set(hil_gcc_cpu cortex-m55)  # GCC 12 has no cortex-m85; its instruction set is the M55's plus PACBTI
endif()

set(hil_cpu_flags -mthumb -mcpu=${hil_gcc_cpu}${hil_ext_${HIL_CPU}_${HIL_ISA}}
                  ${hil_fpu_${HIL_CPU}})
list(JOIN hil_cpu_flags " " hil_cpu_flags)
set(CMAKE_C_FLAGS_INIT "${hil_cpu_flags}")
set(CMAKE_CXX_FLAGS_INIT "${hil_cpu_flags}")
