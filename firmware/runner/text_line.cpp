#include "runner/text_line.h"

namespace hil {

void TextLine::put(char c) {
  if (size_ + 1 == sizeof text_) {
    cut_ = true;
    return;
  }
  text_[size_++] = c;
}

TextLine& TextLine::operator<<(const char* text) {
  while (*text != '\0') put(*text++);
  return *this;
}

TextLine& TextLine::operator<<(uint32_t number) {
  char digits[10];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count > 0) put(digits[--count]);
  return *this;
}

TextLine& TextLine::hex(uint32_t number) {
  *this << "0x";
  for (int shift = 28; shift >= 0; shift -= 4) put("0123456789abcdef"[(number >> shift) & 0xF]);
  return *this;
}

}  // namespace hil
