// A line of text for a person, put together without a heap or printf. Cut where it is full.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil {

class Line {
 public:
  Line& operator<<(const char* text);
  Line& operator<<(uint32_t number);
  Line& hex(uint32_t number);

  const char* c_str() const { return text_; }
  bool cut() const { return cut_; }

 private:
  void put(char c);

  char text_[1024] = {};
  size_t size_ = 0;
  bool cut_ = false;
};

}  // namespace hil
