# make demo   set up and see the main job
# make test   set up and run all tests
# make lint   style and types
# make bench  speed and memory, as ratios in one run

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench clean

demo: $(READY)
	$(BIN)/regard show transformer-base
	@echo
	$(BIN)/python examples/first_look.py
	@echo
	$(BIN)/python examples/tiny_translator.py

# Shapes are checked at run time in the first run; compiled code cannot carry the checker, so it has its own.
test: lint
	$(BIN)/pytest -n 2
	REGARD_CHECK_SHAPES=0 $(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m bench

clean:
	rm -rf .venv

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps rxnfp==0.1.0  # weights that others made, for a test
	touch $(READY)
