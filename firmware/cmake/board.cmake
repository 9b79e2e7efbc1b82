# What board.yaml says besides its memory: hil_console, and HIL_PORTABLE where it is off.
file(STRINGS "${HIL_BOARD_DIR}/board.yaml" hil_board_lines)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HIL_BOARD_DIR}/board.yaml")

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
