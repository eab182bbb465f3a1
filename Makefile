# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup demo test oldest coverage lint format pages docs docs-serve bench build clean

setup: $(STAMP)

# pip (not uv): the constraints pin the tested versions, torch first among them, and pip honours
# the index and find-links that the machine is configured with.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mibounds needs Python 3.11 or later, found " + sys.version)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet --editable '.[dev]' -c constraints.txt
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py --out out/demo

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

# The oldest versions that pyproject.toml declares, in an environment of their own. Deprecations are
# no errors there: they are what old packages use of newer ones.
OLDEST := .venv-oldest
oldest:
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[dask,experiments,sklearn]' \
	  beartype hypothesis jaxtyping pytest pytest-xdist -c constraints-oldest.txt
	$(OLDEST)/bin/python -m pytest --numprocesses=auto --dist=worksteal -W ignore::DeprecationWarning \
	  $(filter-out tests/repository tests/experiments tests/support tests/conftest.py,$(wildcard tests/*)) \
	  tests/experiments/runner tests/experiments/data

coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses=auto --dist=worksteal --cov --cov-fail-under=90

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pages: $(STAMP)
	$(BIN)/python -m pages

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

docs-serve: $(STAMP)
	$(BIN)/mkdocs serve

bench: $(STAMP)
	$(BIN)/python benchmarks/steps.py --device cpu
	$(BIN)/python benchmarks/streaming.py

build: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

clean:
	rm -rf $(VENV) $(OLDEST) dist site .coverage .pytest_cache .ruff_cache
