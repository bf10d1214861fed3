# Works from a fresh clone with nothing but python3 and make.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
ARGS ?=
# Not with --quiet: what mkdocs does not say it does not count as an error either.
SITE = log=$$($(PY) -m mkdocs build --strict 2>&1) || { echo "$$log" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help venv demo test check format docs bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## create .venv with the locked versions (PYTHON=python3.12 picks another Python)

# A finished environment is brought up to date; an unfinished one is made anew.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "onnx-symmem needs Python 3.11 or newer, '$(PYTHON)' is $$($(PYTHON) --version 2>&1 | head -n 1); try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV) (once; a minute or two)"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev,docs]'
	@touch $@

demo: $(STAMP) ## build a small model, optimise it, run it, and show prediction beside measurement
	@$(PY) -m models.demo $(ARGS)

test: $(STAMP) ## run the tests (ARGS="-k name" picks some)
	@$(PY) -m pytest $(ARGS)

check: $(STAMP) ## formatting, lint, types, links of the documentation
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@# mypy maps folders to packages by path only: show it the tree as it is installed, cli/ inside.
	@rm -rf build/types/onnx_symmem && mkdir -p build/types/onnx_symmem
	@ln -s "$(CURDIR)"/onnx_symmem/* build/types/onnx_symmem/
	@ln -s "$(CURDIR)/cli" build/types/onnx_symmem/cli
	@cd build/types && "$(CURDIR)/$(PY)" -m mypy --config-file ../../pyproject.toml
	@$(SITE)

format: $(STAMP) ## format the sources and mend what lint can mend
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

docs: $(STAMP) ## build the documentation into build/site; fails on a link that leads nowhere
	@$(PY) -m documentation
	@$(SITE)
	@echo "build/site/index.html"

bench: $(STAMP) ## measure; ARGS="orders" picks a part, ARGS="--help" lists them
	@$(PY) -m benchmarks $(ARGS)

clean: ## remove everything that make, the tests and the tools made
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
