// Text in a fixed buffer: what printf would do, without the heap newlib's printf may reach for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace hil {

// Appends to a caller's buffer and truncates silently; the buffer always holds a C string.
class Text {
 public:
  Text(char* buffer, size_t capacity) : buffer_(buffer), capacity_(capacity) { buffer_[0] = 0; }

  template <size_t kCapacity>
  explicit Text(char (&buffer)[kCapacity]) : Text(buffer, kCapacity) {}

  template <typename... Parts>
  Text& add(const Parts&... parts) {
    (append(*this, parts), ...);
    return *this;
  }

  size_t size() const { return size_; }
  size_t room() const { return capacity_ - 1 - size_; }
  void put(char c);
  void put_signed(int64_t number);
  void put_unsigned(uint64_t number);

 private:
  char* buffer_;
  size_t capacity_;
  size_t size_ = 0;
};

// Other types become printable by an overload of append() beside their declaration.
void append(Text& text, const char* string);

template <typename Number, std::enable_if_t<std::is_integral_v<Number>, int> = 0>
void append(Text& text, Number number) {
  if constexpr (std::is_signed_v<Number>) {
    text.put_signed(number);
  } else {
    text.put_unsigned(number);
  }
}

}  // namespace hil
