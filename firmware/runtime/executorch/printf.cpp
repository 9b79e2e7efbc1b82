// vsnprintf() for ExecuTorch's log lines, in place of newlib's. That one takes memory from a heap
// for floats, and as Debian builds it (without C99 formats) it does not know %zu: it prints "zu",
// takes no argument for it, and reads the next %s from whatever number comes instead. With this one
// the link needs no system call and no heap, so a kernel that wants one does not link.
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

class Output {
 public:
  Output(char* data, size_t capacity) : data_(data), capacity_(capacity) {}

  void put(char c) {
    if (size_ + 1 < capacity_) data_[size_] = c;
    ++size_;
  }
  size_t finish() {
    if (capacity_ > 0) data_[size_ < capacity_ ? size_ : capacity_ - 1] = 0;
    return size_;
  }

 private:
  char* data_;
  size_t capacity_;
  size_t size_ = 0;
};

struct Spec {
  bool left = false;
  bool zeros = false;
  bool alternate = false;
  int width = 0;
  int precision = -1;
  int length = 0;  // 2: 64 bits; the other types of an ILP32 core have 32
};

void put_padded(Output& out, const Spec& spec, const char* text, size_t size) {
  const size_t width = spec.width > 0 ? static_cast<size_t>(spec.width) : 0;
  const size_t padding = width > size ? width - size : 0;
  const bool zeros = spec.zeros && !spec.left;
  if (zeros && size > 0 && text[0] == '-') {
    out.put('-');
    ++text, --size;
  }
  for (size_t i = 0; !spec.left && i < padding; ++i) out.put(zeros ? '0' : ' ');
  for (size_t i = 0; i < size; ++i) out.put(text[i]);
  for (size_t i = 0; spec.left && i < padding; ++i) out.put(' ');
}

void put_number(Output& out, const Spec& spec, bool negative, uint64_t number, unsigned base) {
  char text[24];
  size_t at = sizeof text;
  do {
    text[--at] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number != 0);
  if (spec.alternate && base == 16) {
    text[--at] = 'x';
    text[--at] = '0';
  }
  if (negative) text[--at] = '-';
  put_padded(out, spec, text + at, sizeof text - at);
}

// Six digits after the point, for a person; beyond what 64 bits hold, only that it is large.
void put_real(Output& out, const Spec& spec, double number) {
  if (number != number) return put_padded(out, spec, "nan", 3);
  const bool negative = number < 0;
  if (negative) number = -number;
  if (number > 9e18) return put_padded(out, spec, negative ? "-large" : "large", negative ? 6 : 5);
  auto whole = static_cast<uint64_t>(number);
  auto rest = static_cast<uint64_t>((number - static_cast<double>(whole)) * 1e6 + 0.5);
  if (rest == 1000000) {
    rest = 0;
    ++whole;
  }
  put_number(out, spec, negative, whole, 10);
  out.put('.');
  Spec six;
  six.zeros = true;
  six.width = 6;
  put_number(out, six, false, rest, 10);
}

int read_count(const char** format, va_list* arguments) {
  if (**format == '*') {
    ++*format;
    return va_arg(*arguments, int);
  }
  int count = 0;
  for (; **format >= '0' && **format <= '9'; ++*format) {
    if (count < 10000) count = count * 10 + (**format - '0');
  }
  return count;
}

Spec read_spec(const char** format, va_list* arguments) {
  Spec spec;
  for (;; ++*format) {
    if (**format == '-') {
      spec.left = true;
    } else if (**format == '0') {
      spec.zeros = true;
    } else if (**format == '#') {
      spec.alternate = true;
    } else if (**format != '+' && **format != ' ') {
      break;
    }
  }
  spec.width = read_count(format, arguments);
  if (**format == '.') {
    ++*format;
    spec.precision = read_count(format, arguments);
  }
  for (; std::strchr("hlLjzt", **format) != nullptr && **format != 0; ++*format) {
    if (**format == 'l') ++spec.length;
    if (**format == 'j') spec.length = 2;
  }
  return spec;
}

void put_string(Output& out, const Spec& spec, const char* text) {
  if (text == nullptr) text = "(null)";
  size_t size = 0;
  const size_t most = spec.precision < 0 ? SIZE_MAX : static_cast<size_t>(spec.precision);
  while (size < most && text[size] != 0) ++size;
  put_padded(out, spec, text, size);
}

void put_argument(Output& out, const Spec& spec, char conversion, va_list* arguments) {
  switch (conversion) {
    case 'd':
    case 'i': {
      const int64_t number =
          spec.length >= 2 ? va_arg(*arguments, long long) : va_arg(*arguments, int);
      const auto bits = static_cast<uint64_t>(number);
      return put_number(out, spec, number < 0, number < 0 ? 0 - bits : bits, 10);
    }
    case 'u':
    case 'x':
    case 'X': {
      const uint64_t number =
          spec.length >= 2 ? va_arg(*arguments, unsigned long long) : va_arg(*arguments, unsigned);
      return put_number(out, spec, false, number, conversion == 'u' ? 10 : 16);
    }
    case 'p': {
      Spec hex = spec;
      hex.alternate = true;
      return put_number(out, hex, false, reinterpret_cast<uintptr_t>(va_arg(*arguments, void*)),
                        16);
    }
    case 'c': {
      const char c = static_cast<char>(va_arg(*arguments, int));
      return put_padded(out, spec, &c, 1);
    }
    case 's':
      return put_string(out, spec, va_arg(*arguments, const char*));
    case 'e':
    case 'f':
    case 'g':
      return put_real(out, spec, va_arg(*arguments, double));
    default:
      out.put('%');
      if (conversion != '%') out.put(conversion);
  }
}

}  // namespace

extern "C" int vsnprintf(char* data, size_t capacity, const char* format, va_list given) {
  va_list arguments;
  va_copy(arguments, given);
  Output out(data, capacity);
  while (*format != 0) {
    if (*format != '%') {
      out.put(*format++);
      continue;
    }
    ++format;
    const Spec spec = read_spec(&format, &arguments);
    if (*format == 0) break;
    put_argument(out, spec, *format++, &arguments);
  }
  va_end(arguments);
  return static_cast<int>(out.finish());
}

extern "C" int snprintf(char* data, size_t capacity, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int size = vsnprintf(data, capacity, format, arguments);
  va_end(arguments);
  return size;
}
