# Every target sets up what it needs in an environment of its own: Python >= 3.11 is enough.
#   PYTHON=/path/to/python   which Python makes the environment (else the newest known one found)
#   VENV=dir                 where the environment is (.venv)
#   CONSTRAINTS=file         exact versions to install, as CI does
#   JOBS=n                   test processes side by side (they wait more than they compute)
#   TESTS="paths or options" what `make test` runs
#   SECONDS=n                how long `make fuzz` looks, in all (60)
#   DOC=file                 the document that `make demo` works on

SHELL := /bin/sh
VENV ?= .venv
JOBS ?= 4
TESTS ?= tests
SECONDS ?= 60
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTEST := $(PY) -m pytest
SIDE_BY_SIDE := -n $(JOBS) --dist worksteal
# The stamps are the installed state: made anew when pyproject.toml changes.
READY_TO_RUN := $(VENV)/.raf-run
READY_TO_WORK := $(VENV)/.raf-work
CONSTRAIN := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

.DEFAULT_GOAL := help
.PHONY: help setup check test test-all crash mutants fuzz bench docs demo clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY_TO_WORK)  ## make the environment with everything the work on raf needs

check: $(READY_TO_WORK)  ## format, lint, types, floors, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell

test: $(READY_TO_WORK)  ## the tests of every day, some minutes on two cores
	$(PYTEST) $(TESTS) $(SIDE_BY_SIDE) -m "not slow and not browser"

test-all: $(READY_TO_WORK)  ## every test; crash campaigns at their short length
	$(PYTEST) $(SIDE_BY_SIDE) --hypothesis-profile=medium

crash: $(READY_TO_WORK)  ## the long crash campaigns
	$(PYTEST) tests/crash --campaign=long

mutants: $(READY_TO_WORK)  ## take the guard of each promise away: its tests must notice
	$(PY) -m tests.mutants -n $(JOBS)

fuzz: $(READY_TO_WORK)  ## fuzz the decoders for SECONDS=60, where atheris is installed
	$(PY) -m tests.property.fuzz_decoders --seconds $(SECONDS)

bench: $(READY_TO_WORK)  ## the benchmarks, each printing machine, versions and seed
	$(PY) -m benchmarks

docs: $(READY_TO_WORK)  ## check the documents: links, code blocks, names, errors, commands
	$(PYTEST) tests/house/test_docs.py tests/house/test_public.py

demo: $(READY_TO_RUN)  ## a team of agents, killed half-way and resumed; DOC=file for a text of yours
	@$(BIN)/raf demo $(if $(DOC),"$(DOC)")

clean:  ## remove builds and caches (not the environment)
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
	find raf tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY_TO_WORK): $(READY_TO_RUN)
	@$(INSTALL) $(CONSTRAIN) -e '.[test,check,docs]'
	@touch $@

$(READY_TO_RUN): pyproject.toml
	@$(MAKE_VENV)
	@$(INSTALL) $(CONSTRAIN) -e .
	@touch $@

# `uv` where there is one; else venv and pip. A name on PATH is no proof that it runs: ask it.
HAS_UV := command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

define MAKE_VENV
if "$(PY)" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && \
  { $(HAS_UV) || "$(PY)" -m pip --version >/dev/null 2>&1; }; then exit 0; fi; \
for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3 python); do \
  "$$python" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 || continue; \
  echo "making $(VENV) with $$python ($$("$$python" -V))"; \
  if $(HAS_UV); then uv venv --quiet --clear --python "$$python" "$(VENV)" && exit 0; fi; \
  "$$python" -m venv --clear "$(VENV)" && exit 0; \
done; \
if $(HAS_UV); then uv venv --clear --python '>=3.11' "$(VENV)" && exit 0; fi; \
echo "No usable Python >= 3.11 found (with its venv module)." >&2; \
echo "Install one, or name it: make $(firstword $(MAKECMDGOALS)) PYTHON=/path/to/python" >&2; \
exit 1
endef

define INSTALL
install() { \
  if $(HAS_UV); then uv pip install --quiet --python "$(PY)" "$$@"; \
  else "$(PY)" -m pip install --quiet --disable-pip-version-check "$$@"; fi; \
}; \
echo "installing into $(VENV)"; install
endef
