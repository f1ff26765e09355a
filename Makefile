# What people and CI run. `make` lists it.
PYTHON ?= python3
UV := .cache/uv/bin/uv
UV_VERSION := 0.13.9
export UV_PYTHON_DOWNLOADS := never
# Once here, or in each process where PYTHONDONTWRITEBYTECODE is set: that doubles every start.
export UV_COMPILE_BYTECODE := 1
# Tests mostly wait for servers, so there may be more at once than cores. One that kills its worker
# ends the run and is named: going on would hang.
PYTEST := .venv/bin/python -m pytest --dist loadfile --max-worker-restart 0
SEED ?= 1
MINUTES ?= 10

.DEFAULT_GOAL := help
.PHONY: help setup demo test check test-kafka test-browser chaos bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.locked ## install what uv.lock names into .venv

.venv/.locked: uv.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Afterturn needs Python 3.11 or later; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up .venv (once, and when uv.lock changes) ..." >&2
	@test -x $(UV) || { $(PYTHON) -m venv .cache/uv && .cache/uv/bin/pip install --quiet "uv==$(UV_VERSION)"; }
	@$(UV) sync --quiet --locked --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

demo: setup ## record a conversation and watch it become memory
	@./afterturn demo

test: setup check ## the whole suite that needs no more than this machine
	$(PYTEST) -m "not kafka and not browser" --numprocesses 3

check: setup ## check format, lint, types and import rules
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/pyright
	.venv/bin/lint-imports

test-kafka: setup ## what needs real Apache Kafka (Java 17 and Maven)
	$(PYTEST) -m kafka --numprocesses 2

test-browser: setup ## the console in a real Chromium; what it saw is kept in test-output/
	$(PYTEST) -m browser --numprocesses 2

chaos: setup ## random faults from SEED on, seed after seed for MINUTES; the laws at the end of each
	AFTERTURN_CHAOS_SEED=$(SEED) AFTERTURN_CHAOS_MINUTES=$(MINUTES) \
		.venv/bin/python -m pytest --capture=no tests/faults/test_chaos.py

clean: ## remove what was set up; .afterturn, the data of `up` and `demo`, stays
	rm -rf .venv .cache .pytest_cache .ruff_cache test-output
