# Included by each project() of ExecuTorch's own build (CMAKE_PROJECT_INCLUDE): its Cortex-M kernels and CMSIS-NN count what
# they execute. HIL_COUNTED_SOURCES is its checkout.
include_guard(GLOBAL)
include("${CMAKE_CURRENT_LIST_DIR}/counting.cmake")

# Their files are called executorch/… and CMSIS-NN/… in the notes, wherever they lie. CMSIS-NN's assembler for MVE needs all
# registers, r7 too, which is the frame pointer of what is not optimised.
function(hil_count_kernels)
  get_target_property(cmsis_nn cmsis-nn SOURCE_DIR)
  foreach(name IN ITEMS cmsis-nn cortex_m_kernels)
    target_compile_options(${name} PRIVATE ${hil_counting} -fomit-frame-pointer
      -ffile-prefix-map=${HIL_COUNTED_SOURCES}=executorch -ffile-prefix-map=${cmsis_nn}=CMSIS-NN)
  endforeach()
endfunction()

cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL hil_count_kernels)
