# find_package(hil_target COMPONENTS builtin) compiles the library in your project, by your compiler and its flags:
# link hil::target, and hil::builtin or a runtime of yours that has the functions of runtime_interface.h. COMPONENTS
# executorch, with HIL_EXECUTORCH_PREFIX, which `hil executorch install` made for your CPU: link hil::executorch. With
# -DHIL_CHANNELS=OFF nothing is left of HIL_INPUT and HIL_OUTPUT.
option(HIL_CHANNELS "With the points HIL_INPUT and HIL_OUTPUT" ON)
set(hil_library "${CMAKE_CURRENT_LIST_DIR}")
get_filename_component(hil_root "${hil_library}" DIRECTORY)

file(GLOB hil_sources CONFIGURE_DEPENDS "${hil_library}/*.c")
add_library(hil_target STATIC ${hil_sources})
add_library(hil::target ALIAS hil_target)
target_compile_features(hil_target PUBLIC c_std_11)
target_include_directories(hil_target PUBLIC "${hil_root}" "${hil_library}")
target_compile_definitions(hil_target PUBLIC HIL_CHANNELS=$<BOOL:${HIL_CHANNELS}>)

if("builtin" IN_LIST hil_target_FIND_COMPONENTS)
  file(GLOB hil_sources CONFIGURE_DEPENDS
    "${hil_root}/runtime/*.cpp" "${hil_root}/runtime/builtin/*.cpp" "${hil_root}/runtime/builtin/kernels/*.cpp")
  add_library(hil_builtin STATIC ${hil_sources})
  add_library(hil::builtin ALIAS hil_builtin)
  target_compile_features(hil_builtin PUBLIC cxx_std_17)
  target_compile_definitions(hil_builtin PRIVATE HIL_PORTABLE=1)
  # The bits of floats must not depend on what a compiler fuses.
  target_compile_options(hil_builtin PRIVATE -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off)
  target_include_directories(hil_builtin SYSTEM PRIVATE "${hil_root}/generated")
  target_link_libraries(hil_builtin PUBLIC hil_target)
  target_link_libraries(hil_target INTERFACE hil_builtin)  # they call each other
  set(hil_target_builtin_FOUND TRUE)
endif()

if("executorch" IN_LIST hil_target_FIND_COMPONENTS)
  set(hil_lib "${HIL_EXECUTORCH_PREFIX}/lib")
  if(NOT EXISTS "${hil_lib}/libexecutorch_core.a")
    message(FATAL_ERROR "HIL_EXECUTORCH_PREFIX=${HIL_EXECUTORCH_PREFIX}: no libexecutorch_core.a in its lib")
  endif()
  set(hil_include "${HIL_EXECUTORCH_PREFIX}/include")
  file(READ "${HIL_EXECUTORCH_PREFIX}/hil.json" hil_install)
  string(JSON hil_version GET "${hil_install}" version)

  # Objects, not an archive: nothing refers to what registers operators or replaces ExecuTorch's weak functions.
  file(GLOB hil_sources CONFIGURE_DEPENDS "${hil_root}/runtime/*.cpp" "${hil_root}/runtime/executorch/*.cpp")
  add_library(hil_executorch OBJECT ${hil_sources} "${hil_root}/runtime/builtin/program_file.cpp")
  add_library(hil::executorch ALIAS hil_executorch)
  target_compile_features(hil_executorch PUBLIC cxx_std_17)
  target_compile_definitions(hil_executorch PRIVATE HIL_PORTABLE=1 HIL_RUNTIME_EXECUTORCH=1
    C10_USING_CUSTOM_GENERATED_MACROS "HIL_EXECUTORCH_VERSION=\"${hil_version}\"")
  # ExecuTorch marks Method::step() as experimental by declaring it deprecated.
  target_compile_options(hil_executorch PRIVATE -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off
    -Wno-deprecated-declarations -Wno-psabi)
  target_include_directories(hil_executorch SYSTEM PRIVATE "${hil_root}/generated" "${hil_include}"
    "${hil_include}/executorch/runtime/core/portable_type/c10")
  set(hil_archives "")
  file(STRINGS "${hil_root}/runtime/executorch/archives.txt" hil_names)
  foreach(name IN LISTS hil_names)
    if(EXISTS "${hil_lib}/lib${name}.a")  # which of them there are differs between versions
      list(APPEND hil_archives "${hil_lib}/lib${name}.a")
    endif()
  endforeach()
  target_link_libraries(hil_executorch PUBLIC hil_target
    -Wl,--whole-archive "${hil_lib}/libcortex_m_ops_lib.a" "${hil_lib}/libexecutorch.a" -Wl,--no-whole-archive
    -Wl,--start-group ${hil_archives} -Wl,--end-group)
  set(hil_target_executorch_FOUND TRUE)
endif()
