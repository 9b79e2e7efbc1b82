# C++ from ExecuTorch's schema. Sets hil_generated, an include folder with it and with FlatBuffers' own headers, and
# hil_schema_headers, which a target that includes builtin/schema.h lists among its sources.
if(NOT EXISTS "${HIL_SCHEMA_DIR}/program.fbs")
  message(FATAL_ERROR "HIL_SCHEMA_DIR=${HIL_SCHEMA_DIR} has no program.fbs: it is the folder "
                      "`schema` of an installed executorch")
endif()

# The first flatc on PATH with headers of its own version: the executorch wheel puts another one into a virtual
# environment, whose headers are elsewhere.
set(hil_flatc_seen "")
if(NOT HIL_FLATC OR NOT HIL_FLATBUFFERS_INCLUDE)
  file(TO_CMAKE_PATH "$ENV{PATH}" hil_path)
  foreach(folder IN LISTS hil_path)
    if(HIL_FLATC OR NOT EXISTS "${folder}/flatc")
      continue()
    endif()
    execute_process(COMMAND "${folder}/flatc" --version OUTPUT_VARIABLE hil_version ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(APPEND hil_flatc_seen " ${folder}/flatc (${hil_version})")
    foreach(include "${folder}/../include" /usr/include /usr/local/include /opt/homebrew/include)
      if(EXISTS "${include}/flatbuffers/base.h" AND NOT HIL_FLATC)
        file(STRINGS "${include}/flatbuffers/base.h" hil_numbers
             REGEX "^#define FLATBUFFERS_VERSION_(MAJOR|MINOR|REVISION) [0-9]+")
        list(TRANSFORM hil_numbers REPLACE "^[^ ]+ [^ ]+ ([0-9]+).*" "\\1")
        list(JOIN hil_numbers "." hil_numbers)
        if(hil_version STREQUAL "flatc version ${hil_numbers}")
          set(HIL_FLATC "${folder}/flatc" CACHE FILEPATH "FlatBuffers' compiler")
          set(HIL_FLATBUFFERS_INCLUDE "${include}" CACHE PATH "the folder of flatbuffers/")
        endif()
      endif()
    endforeach()
  endforeach()
endif()
if(NOT HIL_FLATC OR NOT HIL_FLATBUFFERS_INCLUDE)
  message(FATAL_ERROR "no flatc with headers of its own version on PATH (seen:${hil_flatc_seen}): install "
                      "flatbuffers-compiler and libflatbuffers-dev, or set HIL_FLATC and HIL_FLATBUFFERS_INCLUDE")
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
