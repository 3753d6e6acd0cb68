// The user's line, as (code object, instruction): a few nanoseconds per op, because it is decoded only on demand.
#include <vector>

#include "tensor.h"

// The interpreter's frame struct is private and differs between versions; these are the fields in front of what we
// read.
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(PYPY_VERSION)
#define WENGERT_FAST_FRAMES 1
#endif

namespace wengert {

namespace {

// File names of code objects that are part of wengert: their frames are skipped. Compared by pointer; every code object
// of a module shares its file name string.
std::vector<PyObject*> internal_files;
// The last file that was found not to be internal: nearly always the next one, too. Not owned, so a file of the same
// address may follow it; if that one is internal, add_internal_file has forgotten this.
PyObject* last_users_file = nullptr;

bool internal(PyObject* filename) {
  if (filename == last_users_file) return false;
  for (PyObject* f : internal_files)
    if (f == filename) return true;
  last_users_file = filename;
  return false;
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
  PyCodeObject* f_code;  // since 3.13 an object that may be something else
  Frame* previous;
  PyObject *f_funcobj, *f_globals, *f_builtins, *f_locals, *frame_obj;
  const char* instruction;
  int stacktop;
  uint16_t return_offset;
  char owner;
  // Where C called into the interpreter: such a frame has code, but no line of anybody.
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
  return frame && frame->f_code && PyCode_Check(frame->f_code) ? frame->f_code : nullptr;
}
#endif

}  // namespace

void add_internal_file(PyObject* filename) {
  if (!internal(filename)) internal_files.push_back(Py_NewRef(filename));
  last_users_file = nullptr;
}

SourceLine current_line() {
#ifdef WENGERT_FAST_FRAMES
  Frame* frame = current_frame();
  PyCodeObject* code = code_of(frame);
  while (code && frame->previous && (frame->entry() || internal(code->co_filename))) {
    frame = frame->previous;
    code = code_of(frame);
  }
  if (!code) return {};
  Py_INCREF(code);
  return {code, static_cast<int32_t>(frame->instruction - code->co_code_adaptive)};
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
