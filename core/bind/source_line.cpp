// The user's line, as (code object, instruction): a few nanoseconds per op, because it is decoded only on demand.
#include <cstring>
#include <string>
#include <utility>

#include "standing_line.h"

// The interpreter's frame struct is private and differs between versions; these are the fields in front of what we
// read.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION)
#define WENGERT_FAST_FRAMES 1
#endif

namespace wengert {

namespace {

// Frames of files below the first folder are wengert's own and are skipped, except those below the second folder, which
// count as the user's.
std::string internal_folder, shown_folder;

// Known file names by address: all code objects of a module share one string. Entries own their names, so that an
// address cannot be reused for another string.
struct KnownFile {
  PyObject* name = nullptr;
  bool internal = false;
};
constexpr size_t kKnownFiles = 512;
KnownFile known_files[kKnownFiles];

// Changed under the GIL. Other threads go by the lines that they run.
SourceLine standing;
unsigned long standing_for = 0;

bool is_internal(PyObject* filename) {
  const char* path = PyUnicode_AsUTF8(filename);
  if (!path) {
    PyErr_Clear();
    return false;
  }
  auto is_below = [&](const std::string& folder) {
    return !folder.empty() && std::strncmp(path, folder.c_str(), folder.size()) == 0;
  };
  // Python 3.13 runs a class's __init__ inside a frame of its own, whose code is in no file and has no lines.
  return std::strcmp(path, "__init__") == 0 || (is_below(internal_folder) && !is_below(shown_folder));
}

bool internal(PyObject* filename) {
  KnownFile& known = known_files[reinterpret_cast<uintptr_t>(filename) / 16 % kKnownFiles];
  if (known.name != filename) {
    PyObject* before = known.name;
    known = {Py_NewRef(filename), is_internal(filename)};
    Py_XDECREF(before);
  }
  return known.internal;
}

#ifdef WENGERT_FAST_FRAMES
#if PY_VERSION_HEX < 0x030C0000
struct Frame {
  PyObject *f_func, *f_globals, *f_builtins, *f_locals;
  PyCodeObject* f_code;
  PyObject* frame_obj;
  Frame* previous;
  const char* instruction;
  bool entry() const { return false; }
};
#else
struct Frame {
  PyCodeObject* f_code;  // since 3.13 declared as an object, which may not be a code object
  Frame* previous;
  PyObject *f_funcobj, *f_globals, *f_builtins, *f_locals, *frame_obj;
  const char* instruction;
  int stacktop;
  uint16_t return_offset;
  char owner;
  // A frame where C called into the interpreter: it has code, but no source line.
  bool entry() const { return owner == 3; }  // FRAME_OWNED_BY_CSTACK
};
#endif

Frame* current_frame() {
#if PY_VERSION_HEX < 0x030D0000
  return reinterpret_cast<Frame*>(PyThreadState_GET()->cframe->current_frame);
#else
  return reinterpret_cast<Frame*>(PyThreadState_GET()->current_frame);
#endif
}

// Null for frames of the interpreter itself.
PyCodeObject* code_of(const Frame* frame) {
  return frame->f_code && PyCode_Check(frame->f_code) ? frame->f_code : nullptr;
}
#endif

}  // namespace

void hide_lines(const char* folder, const char* but) {
  internal_folder = folder;
  shown_folder = but;
  for (KnownFile& known : known_files) {
    Py_XDECREF(known.name);
    known = {};
  }
}

SourceLine stand_at(SourceLine line) {
  standing_for = PyThread_get_thread_ident();
  return std::exchange(standing, line);
}

SourceLine standing_line() {
  return standing.code && standing_for == PyThread_get_thread_ident() ? standing : SourceLine{};
}

SourceLine current_line() {
  if (standing.code) [[unlikely]]
    if (SourceLine line = standing_line(); line.code) {
      Py_INCREF(static_cast<PyObject*>(line.code));
      return line;
    }
#ifdef WENGERT_FAST_FRAMES
  const Frame* found = nullptr;  // the innermost frame of the user's; without one, the outermost of ours
  for (const Frame* frame = current_frame(); frame; frame = frame->previous) {
    const PyCodeObject* code = frame->entry() ? nullptr : code_of(frame);
    if (!code) continue;  // C called into the interpreter here
    found = frame;
    if (!internal(code->co_filename)) break;
  }
  if (!found) return {};
  PyCodeObject* code = code_of(found);
  Py_INCREF(code);
  return {code, static_cast<int32_t>(found->instruction - code->co_code_adaptive)};
#else
  PyFrameObject* frame = PyEval_GetFrame();
  if (!frame) return {};
  Py_INCREF(frame);
  for (;;) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    PyFrameObject* back = internal(code->co_filename) ? PyFrame_GetBack(frame) : nullptr;
    if (!back) {
      int32_t at = PyFrame_GetLasti(frame);
      Py_DECREF(frame);
      return {code, at};
    }
    Py_DECREF(code);
    Py_DECREF(frame);
    frame = back;
  }
#endif
}

std::string describe(SourceLine line) {
  if (!line.code) return "an unknown line";
  auto* code = static_cast<PyCodeObject*>(line.code);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  return std::string(file ? file : "?") + ":" + std::to_string(PyCode_Addr2Line(code, line.instruction));
}

}  // namespace wengert
