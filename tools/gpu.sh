#!/usr/bin/env bash
# Build, test, check and measure on a machine that has a GPU but no network:
#
#   tools/gpu.sh fetch [3.12]    beforehand, with a network: the wheels for that Python, into build/wheels
#   tools/gpu.sh build           with CMake and ninja, into build/gpu; ISA=v4 unless it is set
#   tools/gpu.sh test [...]      the tests of tests/cuda that need a GPU, in parallel; arguments go to pytest
#   tools/gpu.sh sanitize        kernels and graphs under compute-sanitizer: memory, and races in shared memory
#   tools/gpu.sh kernels [...]   how long each kernel of a compiled step takes: small, mlp, cnn, lstm, or transformer:bfloat16
#   tools/gpu.sh bench [...]     benchmarks.cuda beside PyTorch and JAX, where they are installed
#
# The machine brings g++, NVIDIA's libraries, NumPy, and PyTorch and JAX to compare with. Results and logs go to $OUT,
# or to build/gpu/results.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
ROOT=$PWD/build/gpu
SITE=$ROOT/site
OUT=${OUT:-$ROOT/results}
export PYTHONUNBUFFERED=1 WENGERT_CACHE_DIR=${WENGERT_CACHE_DIR:-$ROOT/cache}
mkdir -p "$OUT" "$SITE" "$WENGERT_CACHE_DIR"

fetch() {
  local version=${1:-3.12}
  "$PYTHON" -m pip download -q --no-deps --only-binary=:all: --python-version "$version" \
    --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 -d build/wheels \
    nanobind scipy-openblas32 ml_dtypes pytest pluggy iniconfig packaging pygments hypothesis sortedcontainers \
    pytest-xdist execnet
}

# What the machine has is left as it is; the rest comes from the wheels.
unpack() {
  local wheel module
  for wheel in build/wheels/*.whl; do
    module=$(basename "$wheel" | cut -d- -f1)
    [ "$module" = pytest_xdist ] && module=xdist
    "$PYTHON" -c "import $module" 2> /dev/null || "$PYTHON" -m zipfile -e "$wheel" "$SITE"
  done
}

build() {
  unpack
  export PYTHONPATH=$SITE
  cmake -S . -B "$ROOT/build" -G Ninja -DPython_EXECUTABLE="$(command -v "$PYTHON")" -DWENGERT_DEV=ON \
    -DWENGERT_STUBS=OFF -DWENGERT_ISA_LEVELS="${ISA:-v4}" > "$OUT/cmake.log"
  cmake --build "$ROOT/build" > "$OUT/build.log" 2>&1 || { tail -40 "$OUT/build.log"; exit 1; }
  mkdir -p "$SITE/wengert"
  ln -sfn "$PWD"/src/wengert/* "$SITE/wengert/"
  ln -sf "$ROOT"/build/_core*.so "$SITE/wengert/"
  "$PYTHON" -c "import wengert as wg; print(wg.__version__, wg.cuda.get_device_name() if wg.cuda.is_available() else 'no GPU')"
}

run_tests() {
  "$PYTHON" -m pytest -q -n "${WORKERS:-12}" -p no:cacheprovider -p no:benchmark tests/cuda/test_device.py tests/cuda/test_compile.py \
    tests/cuda/test_interop.py tests/cuda/test_available.py "$@" 2>&1 | tee "$OUT/tests.log"
}

sanitize() {
  local tool
  for tool in memcheck racecheck; do
    echo "== $tool"
    compute-sanitizer --tool $tool --error-exitcode 1 "$PYTHON" -m tests.cuda.emulated_kernels "$@" 2>&1 |
      tee "$OUT/$tool.log" | tail -20
  done
  echo "== memcheck of graphs"
  compute-sanitizer --tool memcheck --error-exitcode 1 "$PYTHON" -m tests.cuda.emulated_programs 2>&1 |
    tee "$OUT/memcheck_graphs.log" | tail -20
}

kernels() {
  local step report
  for step in "${@:-small}"; do
    report=$OUT/kernels_${step/:/_}.csv
    ncu --clock-control none --profile-from-start off --metrics gpu__time_duration.sum --csv --print-units base --cache-control none \
      --log-file "$report" "$PYTHON" -m benchmarks.gpu.kernels "${step%%:*}" "$(cut -s -d: -f2 <<< "$step" | grep . || echo float32)"
    "$PYTHON" -m benchmarks.gpu.kernels --table "$report"
  done
}

command=${1:?"fetch, build, test, sanitize, kernels or bench"}
shift
case $command in
  fetch) fetch "$@" ;;
  build) build ;;
  test) PYTHONPATH=$SITE:$PWD run_tests "$@" ;;
  sanitize) PYTHONPATH=$SITE:$PWD sanitize "$@" ;;
  kernels) PYTHONPATH=$SITE:$PWD kernels "$@" ;;
  bench) PYTHONPATH=$SITE:$PWD "$PYTHON" -m benchmarks.cuda --write "$OUT" "$@" ;;
  *)
    echo "tools/gpu.sh: there is no $command; it is fetch, build, test, sanitize, kernels or bench" >&2
    exit 2
    ;;
esac
