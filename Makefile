# make run      the page at http://127.0.0.1:8501 (HOST=, PORT=, MODEL= to change that)
# make setup    environment and model only
# make test     formatting, types, every test, two files at a time (ARGS= goes to pytest)
# make bench    what is measured (ARGS= names of benchmarks), see benchmarks/README.md
# make clean    removes the environment and all caches of this folder, not the downloaded model
#
# PYTHON= names the Python to build .venv with; PIP_ARGS= is passed to pip.

.PHONY: run setup test bench clean environment test-environment model
.DEFAULT_GOAL := run

# The user's python3 where it is new enough, else the newest one that answers (a pyenv shim may
# exist and not answer), else whatever there is, so that scripts/setup.py can say what is wrong.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell \
	for python in python3 python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c '$(NEW_ENOUGH)' 2>/dev/null; then echo $$python; exit; fi; \
	done; \
	command -v python3)
SETUP = $(if $(PYTHON),"$(PYTHON)" scripts/setup.py,echo "glassbox: python3 is missing: install Python 3.11 or newer" >&2; false)

export PIP_ARGS MODEL

run: setup
	@exec .venv/bin/python app.py

setup: environment model

test: test-environment model
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy engine views lessons benchmarks
	@.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

bench: test-environment model
	@.venv/bin/python -m benchmarks $(ARGS)

environment:
	@$(SETUP) run

test-environment:
	@$(SETUP) test

model:
	@.venv/bin/python -m engine.model_loader

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
