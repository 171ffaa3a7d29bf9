# make demo   install the package for use into .venv, and take a tour of it (less than three minutes on two cores)
# make models train the models that come with the package, and write them into regard/box (on a GPU; DATA=FOLDER: its data)
# make sample record the sample of `regard look` again, with the models that are in regard/box (less than a minute)
# make check  the fast tier for contributors: style, types, the tests of the core (about a minute on two cores)
# make test   everything: style, types, the page, all tests (about twelve minutes on two cores)
# make lint   style and types
# make page   the viewer's page: types, tests, and that the committed build is the build of this source
# make docs   the documentation as a site, in build/site; fails if a link or an anchor does not exist
# make reference  what is generated in docs/: commands and recipe keys from the code, notebooks from the tour
# make bench  speed and memory against peers, on a machine that is idle; writes docs/benchmarks.md
# make pictures every picture, screenshot and animation of the README and docs/, light and dark (GROUPS="viewer lab": some)
# make readme  the outputs of commands and the table of results in README.md
# make fuzz   random commands on damaged files for an hour; MINUTES=5 for less
#
# `demo` needs Python 3.11 or newer. `check` and `lint` add the tools for development to the same .venv. `test` also
# needs Node (20.19 or newer) and Chromium; see CONTRIBUTING.md.

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# With bytecode, whatever the environment says: tests start many processes, which would compile the package each time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal
USE := .venv/.user
DEV := .venv/.dev
BROWSERS := chromium chromium-browser google-chrome

.PHONY: demo models sample check test lint page node browser docs reference bench pictures readme fuzz clean

demo: $(USE)
	$(BIN)/python examples/tour.py

models: $(USE)
	$(BIN)/python -m bench.models $(if $(DATA),--from $(DATA))

sample: $(USE)
	$(BIN)/python -m bench.sample

check: lint
	$(PYTEST) --quick

# The first pass checks shapes at run time; the second runs what does not need that, or cannot carry it (compiled code).
test: lint page browser
	$(PYTEST)
	REGARD_CHECK_SHAPES=0 $(PYTEST)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

page: web/node_modules/.ready
	cd web && npm run --silent check && npm test --silent
	cd web && npm run --silent build -- --logLevel warn --outDir ../build/page
	diff -r build/page regard/viewer/page

web/node_modules/.ready: web/package-lock.json | node
	cd web && npm ci --silent --no-audit --no-fund
	touch $@

node:
	@command -v npm >/dev/null || { \
	  echo "make test and make page need Node 20.19 or newer (npm): https://nodejs.org"; exit 1; }

# The page is tested in a real browser. It is installed here only where that takes one command and no password.
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; \
	else \
	  echo "make test needs a browser to test the page: install Chromium (one of: $(BROWSERS))"; exit 1; \
	fi

PAGES := docs/tour/pages/.ready

docs: $(DEV) $(PAGES)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

# The interactive pages of the tour, which its own commands write.
$(PAGES): $(wildcard docs/tour/*.md) $(wildcard regard/viewer/page/*) | $(DEV)
	$(BIN)/python docs/tour/pages.py
	touch $@

reference: $(DEV)
	$(BIN)/python -m docs.site.commands > docs/commands.md
	$(BIN)/python -c 'from regard.cli.keys import page; print(page(), end="")' > docs/recipes.md
	$(BIN)/python docs/tour/notebooks.py

bench: $(DEV)
	$(PIP) accelerate
	$(BIN)/python -m bench
	$(BIN)/python -m bench --render

pictures: $(DEV) browser
	$(BIN)/python -m pictures $(GROUPS)

readme: $(DEV)
	$(BIN)/python -m bench.readme

MINUTES ?= 60

fuzz: $(DEV)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --workers $(WORKERS)

clean:
	rm -rf .venv web/node_modules build

# What a user needs: the package and its dependencies.
$(USE): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	  echo "regard needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing torch and the package into .venv, which takes some minutes the first time"
	$(PIP) torch
	$(PIP) -e .
	touch $@

# What development needs on top. The weights in `rxnfp` were made elsewhere; a test reads them.
$(DEV): $(USE)
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps rxnfp==0.1.0
	touch $@
