#include "runtime/text.h"

namespace hil {

// Names come out of untrusted files and go to a host that decodes UTF-8: keep to ASCII.
void Text::put(char c) {
  if (room() == 0) return;
  const bool printable = (c >= ' ' && c <= '~') || c == '\n';
  buffer_[size_++] = printable ? c : '?';
  buffer_[size_] = 0;
}

void Text::put_unsigned(uint64_t number) {
  char digits[20];
  size_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count != 0) put(digits[--count]);
}

void Text::put_signed(int64_t number) {
  uint64_t magnitude = static_cast<uint64_t>(number);
  if (number < 0) {
    put('-');
    magnitude = 0 - magnitude;
  }
  put_unsigned(magnitude);
}

void append(Text& text, const char* string) {
  for (; *string != 0; ++string) text.put(*string);
}

}  // namespace hil
