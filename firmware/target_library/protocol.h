// The numbers of docs/protocol.md. harness/cortex_m_hil/runner/links/protocol.py has the same, and
// a test compares the three.
#ifndef HIL_PROTOCOL_H
#define HIL_PROTOCOL_H

enum {
  HIL_PROTOCOL_VERSION = 3,
  HIL_RESPONSE_BIT = 0x80,  // in the type of a frame
  HIL_FIRST_EVENT = 0x40,
  HIL_MAX_METHOD_NAME = 128,  // bytes
  HIL_EXIT_FAULT = 70,        // exit statuses, and what ENDED carries
  HIL_EXIT_FATAL = 71,
};

typedef enum hil_request {
  HIL_REQUEST_HELLO = 0x01,
  HIL_REQUEST_WRITE = 0x02,
  HIL_REQUEST_READ = 0x03,
  HIL_REQUEST_FILL = 0x04,
  HIL_REQUEST_DIGEST = 0x05,
  HIL_REQUEST_LOAD = 0x06,
  HIL_REQUEST_DESCRIBE = 0x07,
  HIL_REQUEST_EXECUTE = 0x08,
  HIL_REQUEST_STEP = 0x09,
  HIL_REQUEST_STATS = 0x0A,
  HIL_REQUEST_RESET = 0x0B,
  HIL_REQUEST_STREAM = 0x0C,
  HIL_REQUEST_DATA = 0x0D,
  HIL_REQUEST_OPERATORS = 0x0E,
  HIL_REQUEST_RESIZE = 0x0F,
  HIL_REQUEST_CHANNELS = 0x10,
  HIL_REQUEST_CHANNEL = 0x11,
  HIL_REQUEST_COUNTERS = 0x12,
} hil_request;

typedef enum hil_event {
  HIL_EVENT_LOG = 0x40,
  HIL_EVENT_PROGRESS = 0x41,
  HIL_EVENT_FAULT = 0x42,
  HIL_EVENT_READY = 0x43,
  HIL_EVENT_ENDED = 0x44,
  HIL_EVENT_WAITING = 0x45,
} hil_event;

typedef enum hil_memory_region {
  HIL_MEMORY_PROGRAM = 0,
  HIL_MEMORY_PLANNED = 1,
  HIL_MEMORY_VALUE = 2,
  HIL_MEMORY_INPUT = 3,
  HIL_MEMORY_OUTPUT = 4,
  HIL_MEMORY_RESIDENT = 5,
  HIL_MEMORY_COVERAGE = 6,
  HIL_MEMORY_BANK = 7,
  HIL_MEMORY_CHANNEL = 8,
} hil_memory_region;

// The status of a response.
typedef enum hil_status {
  HIL_STATUS_OK = 0,
  HIL_STATUS_BAD_REQUEST = 1,
  HIL_STATUS_BAD_VERSION = 2,
  HIL_STATUS_BAD_STATE = 3,
  HIL_STATUS_PROGRAM_REJECTED = 4,
  HIL_STATUS_UNSUPPORTED_OPERATOR = 5,
  HIL_STATUS_UNSUPPORTED_DELEGATE = 6,
  HIL_STATUS_OUT_OF_MEMORY = 7,
  HIL_STATUS_KERNEL_FAILED = 8,
  HIL_STATUS_BAD_DIGEST = 9,
} hil_status;

typedef enum hil_kind {
  HIL_KIND_NONE = 0,
  HIL_KIND_TENSOR = 1,
  HIL_KIND_INT = 2,
  HIL_KIND_DOUBLE = 3,
  HIL_KIND_BOOL = 4,
} hil_kind;

// Of a channel, as the firmware sees it.
typedef enum hil_direction {
  HIL_DIRECTION_INPUT = 0,
  HIL_DIRECTION_OUTPUT = 1,
} hil_direction;

// What CHANNEL does with one.
typedef enum hil_action {
  HIL_ACTION_LOOK = 0,
  HIL_ACTION_ATTACH = 1,
  HIL_ACTION_DETACH = 2,
  HIL_ACTION_GIVE = 3,
  HIL_ACTION_FETCH = 4,
} hil_action;

typedef enum hil_log_level {
  HIL_LOG_DEBUG = 0,
  HIL_LOG_INFO = 1,
  HIL_LOG_ERROR = 2,
} hil_log_level;

#endif
