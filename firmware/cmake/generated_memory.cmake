# HIL_MEMORY_DIR: a folder with what is generated of memory: in board.yaml (memory.h, runner.ld, banks.ld). The host gives
# it; a build without the host makes it, by the host's own reader of the file.
if(NOT HIL_MEMORY_DIR)
  set(HIL_MEMORY_DIR "${CMAKE_BINARY_DIR}/memory")
  find_program(HIL_PYTHON NAMES python3 HINTS "${CMAKE_SOURCE_DIR}/../.venv/bin")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${CMAKE_SOURCE_DIR}/../harness" "${HIL_PYTHON}"
            -m cortex_m_hil.runner.memory_files "${HIL_BOARD_DIR}" "${HIL_MEMORY_DIR}"
    RESULT_VARIABLE hil_status ERROR_VARIABLE hil_said)
  if(NOT hil_status EQUAL 0)
    message(FATAL_ERROR "memory: of ${HIL_BOARD_DIR}/board.yaml was not read: ${hil_said}\n"
                        "HIL_PYTHON=${HIL_PYTHON} is to be a python3 in which this package is installed.")
  endif()
endif()
