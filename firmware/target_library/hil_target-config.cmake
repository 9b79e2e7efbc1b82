# find_package(hil_target COMPONENTS builtin) compiles the library in your project, by your compiler and its flags:
# link hil::target, and hil::builtin or a runtime of yours that has the functions of runtime_interface.h. With
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
