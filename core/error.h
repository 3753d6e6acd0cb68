// Errors that reach Python as exceptions of the public hierarchy; the kind picks the class.
#pragma once
#include <stdexcept>
#include <string>

namespace wengert {

enum class ErrorKind {
  shape,
  dtype,
  index,
  value,
  range,
  gradient,
  consumed,
  in_place,
  linalg,
  trace,
  device,
  budget,
  python,  // a Python exception is already set; the message is empty
  count
};

struct Error : std::runtime_error {
  ErrorKind kind;
  Error(ErrorKind k, const std::string& message) : std::runtime_error(message), kind(k) {}
};

// "op: what went wrong", as every message of the library begins.
[[noreturn]] inline void fail(ErrorKind kind, const char* op, const std::string& message) {
  throw Error(kind, std::string(op) + ": " + message);
}

}  // namespace wengert
