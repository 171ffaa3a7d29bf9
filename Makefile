# make demo   set up and see the main job
# make test   set up and run all tests
# make lint   style and types
# make page   the viewer's page: types, tests, and that what is committed is what a fresh build gives (needs Node)
# make bench  speed and memory, as ratios in one run

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint page browser bench clean

demo: $(READY)
	$(BIN)/regard show transformer-base
	@echo
	$(BIN)/python examples/first_look.py
	@echo
	$(BIN)/python examples/tiny_translator.py

# Shapes are checked at run time in the first run; compiled code cannot carry the checker, so it has its own.
test: lint page browser
	$(BIN)/pytest -n 2
	REGARD_CHECK_SHAPES=0 $(BIN)/pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

page: web/node_modules/.ready
	cd web && npm run --silent check && npm test --silent
	cd web && npm run --silent build -- --logLevel warn --outDir ../build/page
	diff -r build/page regard/viewer/page

web/node_modules/.ready: web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	touch $@

# The page is tested in a real browser, which Debian and its kin have as a package.
browser:
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)

bench: $(READY)
	$(BIN)/python -m bench

clean:
	rm -rf .venv web/node_modules build

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps rxnfp==0.1.0  # weights that others made, for a test
	touch $(READY)
