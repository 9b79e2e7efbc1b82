# What board.yaml says: hil_console, HIL_PORTABLE where it is off; and HIL_*_POOL and HIL_RESIDENT_*, in bytes, where they are not given. The host, which
# gives them, has checked the file; this is for builds without it.
file(STRINGS "${HIL_BOARD_DIR}/board.yaml" hil_board_lines)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HIL_BOARD_DIR}/board.yaml")

# `key` of the mapping that stands on the line of `field`: a number with an optional K, M or 0x; 0 where there is none.
function(hil_read_size variable field key)
  if(NOT "${${variable}}" STREQUAL "")
    return()
  endif()
  set(bytes 0)
  foreach(line IN LISTS hil_board_lines)
    if(line MATCHES "^${field}:.*[{, ]${key}: *(0x[0-9a-fA-F]+|[0-9]+)([KM]?)")
      set(bytes "${CMAKE_MATCH_1}")
      if(CMAKE_MATCH_2 STREQUAL "K")
        math(EXPR bytes "${bytes} * 1024")
      elseif(CMAKE_MATCH_2 STREQUAL "M")
        math(EXPR bytes "${bytes} * 1048576")
      endif()
    endif()
  endforeach()
  set(${variable} "${bytes}" PARENT_SCOPE)
endfunction()

foreach(pool program planned method shared)
  string(TOUPPER "HIL_${pool}_POOL" variable)
  hil_read_size(${variable} pools ${pool})
endforeach()
hil_read_size(HIL_RESIDENT_ADDRESS resident address)
hil_read_size(HIL_RESIDENT_SIZE resident size)

# portable: false
if(hil_board_lines MATCHES "(^|;)portable: *false")
  set(HIL_PORTABLE OFF)
endif()

# How the board talks to the host decides which console is linked.
set(hil_console "${hil_board_lines}")
list(FILTER hil_console INCLUDE REGEX "^console:")
string(REGEX REPLACE "^console:[ \t]*([a-z0-9_]+).*$" "\\1" hil_console "${hil_console}")
if(NOT EXISTS "${CMAKE_CURRENT_LIST_DIR}/../platform/console_${hil_console}.cpp")
  message(FATAL_ERROR "${HIL_BOARD_DIR}/board.yaml: no console '${hil_console}'")
endif()
foreach(variable HIL_PROGRAM_POOL HIL_PLANNED_POOL HIL_METHOD_POOL)
  if(NOT ${variable})
    message(FATAL_ERROR "${HIL_BOARD_DIR}/board.yaml has no pools for ${variable}, and it is not given")
  endif()
endforeach()
