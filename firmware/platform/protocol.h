// The numbers of docs/protocol.md. harness/cortex_m_hil/runner/links/protocol.py has the same, and
// a test compares the three.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil {

constexpr uint8_t kProtocolVersion = 3;
constexpr uint8_t kResponseBit = 0x80;  // in the type of a frame
constexpr uint8_t kFirstEvent = 0x40;
constexpr size_t kMaxMethodName = 128;  // bytes

enum class Request : uint8_t {
  kHello = 0x01,
  kWrite = 0x02,
  kRead = 0x03,
  kFill = 0x04,
  kDigest = 0x05,
  kLoad = 0x06,
  kDescribe = 0x07,
  kExecute = 0x08,
  kStep = 0x09,
  kStats = 0x0A,
  kReset = 0x0B,
  kStream = 0x0C,
  kData = 0x0D,
  kOperators = 0x0E,
  kResize = 0x0F,
};

enum class Event : uint8_t {
  kLog = 0x40,
  kProgress = 0x41,
  kFault = 0x42,
  kReady = 0x43,
  kEnded = 0x44,
};

enum class MemoryRegion : uint8_t {
  kProgram = 0,
  kPlanned = 1,
  kValue = 2,
  kInput = 3,
  kOutput = 4,
  kResident = 5,
  kCoverage = 6,
  kBank = 7,
};

// The status of a response.
enum class Code : uint16_t {
  kOk = 0,
  kBadRequest = 1,
  kBadVersion = 2,
  kBadState = 3,
  kProgramRejected = 4,
  kUnsupportedOperator = 5,
  kUnsupportedDelegate = 6,
  kOutOfMemory = 7,
  kKernelFailed = 8,
  kBadDigest = 9,
};

enum class Kind : uint8_t { kNone = 0, kTensor = 1, kInt = 2, kDouble = 3, kBool = 4 };

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kError = 2 };

// Exit statuses of the runner, and what ENDED carries.
constexpr int kExitFault = 70;
constexpr int kExitFatal = 71;

}  // namespace hil
