# Everything starts from Python 3.11 and make; the rest is fetched, pinned and checked by hash.
PYTHON ?= python3
ARGS ?=
JOBS ?= 2
export PYTHON

UV = scripts/uv
RUN = .venv/bin
BUILD = $(UV) pip install --quiet --no-deps --no-build-isolation --python .venv -e .
SYNC = $(UV) pip sync --quiet --require-hashes --python .venv
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --no-header $(ARGS)

.PHONY: setup serve test check bench add lock clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make serve [ARGS=...]  serve from this checkout"
	@echo "make setup             install what developing needs"
	@echo "make test [ARGS=...]   check, and run the tests"
	@echo "make check             style, types and architecture"
	@echo "make bench [ARGS=...]  measure"
	@echo "make add PACKAGE=...   install one more package, such as langchain-openai"
	@echo "make lock              pin all dependencies (ARGS=--upgrade: newer ones)"

setup: .venv/.dev

serve: .venv/.runtime
	@exec $(RUN)/tertulia serve $(ARGS)

test: check
	$(RUN)/pytest -n $(JOBS) --dist loadfile $(ARGS)

check: .venv/.dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/basedpyright
	$(RUN)/lint-imports

bench: .venv/.dev
	$(RUN)/python -m bench $(ARGS)

# For models of other providers; the locked packages stay as they are.
add: | .venv/bin/python
	$(UV) pip install --python .venv --constraints requirements.lock $(PACKAGE)

lock:
	$(COMPILE) pyproject.toml scripts/build-requirements.txt --output-file requirements.lock
	$(COMPILE) pyproject.toml scripts/build-requirements.txt --group dev --constraints requirements.lock \
		--output-file requirements-dev.lock

clean:
	rm -rf .venv .tools

.venv/bin/python:
	$(UV) venv --quiet --python "$$(command -v $(PYTHON))" .venv

# A checkout that has the tools for developing keeps them.
.venv/.runtime: requirements.lock pyproject.toml | .venv/bin/python
	@echo "Installing…" >&2
	@if [ -e .venv/.dev ]; then $(SYNC) requirements-dev.lock; else $(SYNC) requirements.lock; fi
	@$(BUILD)
	@touch $@

.venv/.dev: requirements-dev.lock pyproject.toml | .venv/bin/python
	@echo "Installing…" >&2
	@$(SYNC) requirements-dev.lock
	@$(BUILD)
	@touch .venv/.runtime $@
