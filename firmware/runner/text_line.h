// A line of text for people, made without a heap or printf. It is cut where its buffer is full.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hil {

class TextLine {
 public:
  TextLine& operator<<(const char* text);
  TextLine& operator<<(uint32_t number);
  TextLine& hex(uint32_t number);

  const char* c_str() const { return text_; }
  bool cut() const { return cut_; }

 private:
  void put(char c);

  char text_[1024] = {};
  size_t size_ = 0;
  bool cut_ = false;
};

}  // namespace hil
