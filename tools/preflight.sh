#!/bin/sh
# Checks that this machine has what the build needs; otherwise says what to install, and fails.
# usage: tools/preflight.sh PYTHON CXX
python=$1
cxx=$2

fail() {
  printf '\nwengert: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '  %s\n' "$line" >&2; done
  exit 1
}

if [ -z "$python" ] || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  fail "Python 3.11 or newer is needed; found: $("${python:-python3}" --version 2>&1 | head -n 1)" \
    'Debian, Ubuntu:  sudo apt install python3 python3-dev python3-venv' \
    'Fedora:          sudo dnf install python3 python3-devel' \
    'macOS:           brew install python' \
    'If it is installed under another name:  make PYTHON=/path/to/python3.12'
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
  fail "$python cannot make virtual environments (modules venv and ensurepip)." \
    'Debian, Ubuntu:  sudo apt install python3-venv'
fi
if ! "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'; then
  fail "the C headers of $python (Python.h) are missing." \
    'Debian, Ubuntu:  sudo apt install python3-dev' \
    'Fedora:          sudo dnf install python3-devel'
fi

if [ -z "$cxx" ] || ! command -v "${cxx%% *}" >/dev/null 2>&1; then
  fail "no C++ compiler was found${cxx:+ (CXX=$cxx)}." \
    'Debian, Ubuntu:  sudo apt install g++' \
    'Fedora:          sudo dnf install gcc-c++' \
    'macOS:           xcode-select --install' \
    'If it is installed under another name:  make CXX=/path/to/compiler'
fi
probe='#include <bit>
#include <concepts>
#include <span>
template <std::integral T> constexpr int f(T x) { return std::popcount(static_cast<unsigned>(x)); }
static_assert(f(3) == 2);'
# CXX may be a command with arguments ("ccache g++").
if ! message=$(printf '%s\n' "$probe" | $cxx -std=c++20 -x c++ -fsyntax-only - 2>&1); then
  printf '%s\n' "$message" | head -n 5 >&2
  fail "$cxx does not compile C++20. GCC 11, Clang 14 or Xcode 15, or newer, is needed." \
    'Debian, Ubuntu:  sudo apt install g++' \
    'Fedora:          sudo dnf install gcc-c++' \
    'macOS:           xcode-select --install'
fi
