# C++ from ExecuTorch's schema. Sets hil_generated, an include folder with it and with FlatBuffers' own headers, and
# hil_schema_headers, which a target that includes builtin/schema.h lists among its sources.
if(NOT EXISTS "${HIL_SCHEMA_DIR}/program.fbs")
  message(FATAL_ERROR "HIL_SCHEMA_DIR=${HIL_SCHEMA_DIR} has no program.fbs: it is the folder "
                      "`schema` of an installed executorch")
endif()

find_program(HIL_FLATC flatc)
if(NOT HIL_FLATC)
  message(FATAL_ERROR "flatc not found: install flatbuffers-compiler, or set HIL_FLATC")
endif()
get_filename_component(hil_flatc_prefix "${HIL_FLATC}" DIRECTORY)
get_filename_component(hil_flatc_prefix "${hil_flatc_prefix}" DIRECTORY)
find_path(HIL_FLATBUFFERS_INCLUDE flatbuffers/verifier.h
  HINTS "${hil_flatc_prefix}/include" PATHS /usr/include /usr/local/include /opt/homebrew/include
  NO_CMAKE_FIND_ROOT_PATH)
if(NOT HIL_FLATBUFFERS_INCLUDE)
  message(FATAL_ERROR "FlatBuffers' headers not found: install libflatbuffers-dev, or set "
                      "HIL_FLATBUFFERS_INCLUDE")
endif()

# The headers alone: their neighbours in /usr/include are the host's C library.
set(hil_generated "${CMAKE_CURRENT_BINARY_DIR}/include")
file(MAKE_DIRECTORY "${hil_generated}")
file(REMOVE "${hil_generated}/flatbuffers")
file(CREATE_LINK "${HIL_FLATBUFFERS_INCLUDE}/flatbuffers" "${hil_generated}/flatbuffers" SYMBOLIC)

set(hil_schemas "${HIL_SCHEMA_DIR}/program.fbs" "${HIL_SCHEMA_DIR}/scalar_type.fbs")
set(hil_schema_headers "${hil_generated}/program_generated.h"
                       "${hil_generated}/scalar_type_generated.h")
add_custom_command(
  OUTPUT ${hil_schema_headers}
  COMMAND "${HIL_FLATC}" --cpp -I "${HIL_SCHEMA_DIR}" -o "${hil_generated}" ${hil_schemas}
  DEPENDS ${hil_schemas}
  VERBATIM)
