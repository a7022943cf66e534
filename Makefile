# `make` without a target prints help. Its files go to .venv, build and runs, and beside the package (_C*.so).

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
PHASE := sh tools/phase.sh
DATA ?= digits
PYTHON ?=
ARGS ?=
JOBS ?= 2
# What `make test` leaves to `make test-device`. `make check` runs both at once, and many examples of each property.
MARKED = -m 'not device'
PROFILE =
comma := ,

# Tests run in several processes. Each has one thread, unless a test asks for more.
PYTEST = env OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadgroup

# cmake, ninja, ruff and clang-format are taken from the environment.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

NATIVE_SOURCES := CMakeLists.txt $(wildcard $(foreach folder,cpu cpu/common cuda cuda/common,kernels/$(folder)/*.[ch]*))
LIBRARY_SOURCES := $(filter-out CMakeLists.txt,$(NATIVE_SOURCES))
# A kernel and its tests have the same base name. The parts of a kernel have no tests of their name.
CPU_TESTS := $(patsubst kernels/cpu/%.cpp,tests/test_%.py,$(wildcard kernels/cpu/*.cpp))
TRITON_TESTS := $(wildcard $(patsubst kernels/triton/%.py,tests/test_%.py,$(wildcard kernels/triton/*.py))) tests/test_capture.py tests/test_launches.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run test fuzz test-kernels test-device bench check lint site format native sanitize wheel matrix clean distclean

help:
	@echo 'make run              set up, then train SeeGera for link prediction on the digits graph; results in runs/digits'
	@echo 'make run DATA=cora    the same on cora, citeseer, pubmed, photo, computers, cs or physics; results in runs/cora'
	@echo '                      ARGS="--epochs 50" hands further options to `seegera-fast train`'
	@echo 'make test             set up, then run the tests; ARGS="-k sparse_matmul" hands options to pytest'
	@echo 'make test-kernels     the kernel tests on the base instruction set, and on Triton'"'"'s interpreter'
	@echo 'make test-device      what the GPU kernels take, compiled without a GPU, and a rehearsal of bench/device.sh'
	@echo 'make bench            set up, then run the benchmarks and print their table'
	@echo 'make check            all that CI runs: lint, native, site, test-kernels, test with test-device and many examples'
	@echo 'make lint             ruff and clang-format, changing nothing; make format lets them change files'
	@echo 'make native           build the native libraries in place and say which backends are available'
	@echo 'make sanitize         the tests of the CPU kernels under the sanitizers of addresses, undefined behaviour and threads,'
	@echo '                      on each instruction set that the processor has; ten minutes'
	@echo 'make wheel            build the wheel for other machines, manylinux_2_28, in dist'
	@echo 'make matrix           try the wheel on every Python and torch that can be had here, and print a table'
	@echo 'make site             build the documentation as a site in build/site, and check its links'
	@echo 'make clean            remove what was built; make distclean removes .venv too'
	@echo
	@echo 'Setting up needs Python 3.10 or later and a C++ compiler. It makes .venv, keeps a torch that is already installed'
	@echo 'for the Python it finds, and else installs one (without an NVIDIA GPU: the CPU build, if pip can find it).'
	@echo '  PYTHON=python3.12   the Python to make .venv with'
	@echo '  JOBS=4              processes for the tests, where 2 are too few'
	@echo '  SEEGERA_DATA=FOLDER where the data sets are, or are to be downloaded to'
	@echo '  SEEGERA_CUDA=0      leaves the CUDA library out even where nvcc is found'

run: $(VENV)/.installed $(VENV)/.native
	@$(PHASE) 'training on $(DATA)' $(PY) -m seegera_fast train --data $(DATA) --out runs/$(DATA) $(ARGS)

test: $(VENV)/.extra-test $(VENV)/.native
	@$(PHASE) tests $(PYTEST) $(MARKED) $(PROFILE) tests $(ARGS)

# Very many random configurations and damaged files: some ten minutes.
fuzz: $(VENV)/.extra-test $(VENV)/.native
	@$(PHASE) 'random configurations and damaged files' $(PYTEST) --hypothesis-profile=fuzz tests/test_properties.py \
		tests/test_properties_files.py $(ARGS)

# Tests that run the same lines of Python for every instruction set.
FOR_ANY_ISA = operators_are_sound or compiles_whole or second_derivatives or no_gradient_wanted or inductor or torch_func or without_the_outputs

# Kernels that `make test` does not run: those for a processor without AVX, and Triton's, which run here in Triton's
# interpreter, with or without a GPU. What torch.func and torch.compile do is the same for all backends, and slow in the
# interpreter, which promises nothing for several threads. Means over many draws follow from a draw being that of the
# reference.
NOT_INTERPRETED = torch_func or inductor or compiles_whole or any_number_of_threads or same_bits_with_other_threads \
	or every_element_is_as_likely or keeps_the_mean or unbiased or near_the_whole_sum or to_one
test-kernels: $(VENV)/.extra-test $(VENV)/.native
	@$(PHASE) 'CPU kernels on the base instruction set' env SEEGERA_ISA=base $(PYTEST) -q -k 'cpu and not ($(FOR_ANY_ISA))' $(CPU_TESTS)
	@if $(PY) -c 'import triton' 2>/dev/null; then \
		$(PHASE) 'Triton kernels, interpreted' env TRITON_INTERPRET=1 $(PYTEST) -q -k 'triton and not ($(NOT_INTERPRETED))' $(TRITON_TESTS); \
	else echo 'Triton is not installed: its kernels were not run'; fi

# The resource tables of the GPU kernels, which need nvcc and Triton, and the script for a machine with a GPU.
test-device: $(VENV)/.extra-test $(VENV)/.native
	@$(PHASE) 'code for GPUs' $(PYTEST) -q -m device tests

bench: $(VENV)/.extra-bench $(VENV)/.native
	@$(PHASE) benchmarks $(PY) bench/report.py $(ARGS)

check: $(VENV)/.extra-test,lint,docs
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory native
	@$(MAKE) --no-print-directory site
	@$(MAKE) --no-print-directory test-kernels
	@$(MAKE) --no-print-directory test MARKED= PROFILE='--hypothesis-profile=long --durations=25 --durations-min=5'

lint: $(VENV)/.extra-lint
	@$(PHASE) 'ruff check' ruff check .
	@$(PHASE) 'ruff format' ruff format --check .
	@$(PHASE) 'clang-format' clang-format --dry-run -Werror $(LIBRARY_SOURCES)

site: $(VENV)/.extra-docs
	@$(PHASE) 'documentation' env NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@$(PHASE) 'links of the site' $(PY) tools/check_site.py build/site

format: $(VENV)/.extra-lint
	ruff check --fix .
	ruff format .
	clang-format -i $(LIBRARY_SOURCES)

native: $(VENV)/.installed $(VENV)/.native
	@$(PY) -m seegera_fast info

# It builds its own libraries; that of the package is not needed.
sanitize: $(VENV)/.extra-test
	@$(PHASE) 'CPU kernels under sanitizers' $(PY) tools/sanitize.py --jobs $(JOBS) --leave-out $(filter-out or,$(FOR_ANY_ISA)) $(ARGS)

# For other machines; pip builds one for this machine alone.
wheel: $(VENV)/.extra-wheel
	@$(PHASE) wheel $(PY) tools/make_wheel.py $(ARGS)

# Environments of about 1 GB are made in build/matrix, one at a time.
matrix: $(VENV)/.extra-wheel
	@$(PHASE) 'wheel on other Pythons and torches' $(PY) tools/matrix.py $(ARGS)

# --- setting up ------------------------------------------------------------------------------------------------------

$(VENV)/.python: tools/make_venv.py tools/make_venv.sh
	@$(PHASE) 'virtual environment' sh tools/make_venv.sh $(VENV) '$(PYTHON)'
	@touch $@

$(VENV)/.torch: $(VENV)/.python tools/install_torch.py
	@$(PHASE) torch $(PY) tools/install_torch.py
	@touch $@

# cmake and ninja may be importable from outside of .venv, but their commands would not be found there.
$(VENV)/.build-tools: $(VENV)/.torch
	@$(PHASE) 'build tools' sh -c "$(PIP) install --quiet 'setuptools>=77' && for tool in cmake ninja; do \
		test -x $(VENV)/bin/\$$tool || $(PIP) install --quiet --ignore-installed \$$tool || exit 1; done"
	@touch $@

# The package is installed without its libraries, which are built beside it, once, whatever else is installed later.
install = $(PHASE) 'install' env SEEGERA_NATIVE=0 $(PIP) install --quiet --no-build-isolation --editable '.$(1)'

$(VENV)/.installed: $(VENV)/.build-tools setup.py pyproject.toml
	@$(call install,)
	@touch $@

$(VENV)/.extra-%: $(VENV)/.build-tools setup.py pyproject.toml
	@$(call install,[$*])
	@touch $(patsubst %,$(VENV)/.extra-%,$(subst $(comma), ,$*)) $@ $(VENV)/.installed

# Only what changed is compiled, against the installed torch.
$(VENV)/.native: $(VENV)/.build-tools setup.py $(NATIVE_SOURCES)
	@$(PHASE) 'native libraries' $(PY) setup.py --quiet build_ext --inplace
	@touch $@

# --- the rest --------------------------------------------------------------------------------------------------------

clean:
	rm -rf build dist seegera_fast.egg-info .pytest_cache .ruff_cache .hypothesis .benchmarks
	rm -f seegera_fast/_C*.so $(VENV)/.native
	find seegera_fast kernels tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
