# Everything runs in .venv, made here from plain python3; nothing else has to be installed before.
PYTHON ?= python3
CAMPAIGN ?= config.yaml
MACHINE ?= local
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := $(shell sed -n '/^name = "uv"$$/{n;s/.*"\(.*\)"/\1/p;}' uv.lock)
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := $(CURDIR)/$(VENV)
SNAKEMAKE := $(BIN)/snakemake --configfile $(CAMPAIGN)

.PHONY: article quick tell test check plan doctor verify lock dag report prefetch demo example clean

article: $(VENV)/.ready ## measure what is missing and write both articles
	@test -f $(CAMPAIGN) || { echo "twoturn: $(CAMPAIGN): there is no such campaign file"; exit 1; }
	$(SNAKEMAKE) --cores 1

quick: ## one series, four rounds: whether everything works here
	$(MAKE) article CAMPAIGN=campaigns/quick.yaml

tell: $(VENV)/.ready ## write both articles of what is there and measure nothing
	TWOTURN_TELL=1 $(SNAKEMAKE) --cores 1

plan: $(VENV)/.ready ## what would be measured, in which order, and why
	$(BIN)/twoturn plan $(CAMPAIGN)

doctor: $(VENV)/.ready ## what is here, what is missing, and whether the machine is fit to measure
	$(BIN)/twoturn doctor $(CAMPAIGN)

verify: $(VENV)/.ready ## check what is measured: whole, in order, of the right fingerprint
	$(BIN)/twoturn verify $(CAMPAIGN)

lock: $(VENV)/.ready ## write this machine's lock as it is now
	$(BIN)/twoturn lock $(CAMPAIGN) --name $(MACHINE)

dag: $(VENV)/.ready ## the rule graph as mermaid
	mkdir -p reports
	$(SNAKEMAKE) --rulegraph mermaid-js > reports/rulegraph.mmd
	@echo reports/rulegraph.mmd

report: $(VENV)/.ready ## Snakemake's report of what was measured: pages, figures, run times
	mkdir -p reports
	$(SNAKEMAKE) --report reports/report.html

prefetch: $(VENV)/.ready ## everything that measuring needs from the network
	$(BIN)/python scripts/prefetch.py --campaign $(CAMPAIGN)

# A faster BLAS is used where the system has one; training takes about an hour with it.
demo: prefetch ## train the embedded checkpoints anew
	export LD_PRELOAD=$(wildcard /usr/lib/*/openblas-pthread/libopenblas.so.0) OPENBLAS_NUM_THREADS=1; \
	$(firstword $(wildcard .twoturn/envs/mlx-vlm-*/bin/python)) -m training.hybrid checkpoints/demo && \
	$(BIN)/python -m training.llama checkpoints/demo
	$(BIN)/python -m training.card checkpoints/demo

example: $(VENV)/.ready ## tell docs/example again from its own cells
	$(BIN)/python scripts/example.py --into docs/example

# Two at a time, whole workflows one after the other: see tests/conftest.py.
test: $(VENV)/.dev ## all tests, real servers included
	$(BIN)/pytest -n 2 --no-loadscope-reorder

check: $(VENV)/.dev ## formatting, lint, types, workflow lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/python scripts/lint_workflow.py

clean: ## forget environments and caches; results and reports stay
	rm -rf $(VENV) .twoturn .snakemake logs .mypy_cache .ruff_cache .hypothesis

$(BIN)/uv:
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "twoturn needs Python 3.11 to 3.13; name one: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$(UV_VERSION)"

$(VENV)/.ready: uv.lock pyproject.toml | $(BIN)/uv
	$(BIN)/uv sync --quiet --frozen --inexact --no-dev --compile-bytecode
	@touch $@

$(VENV)/.dev: uv.lock pyproject.toml | $(BIN)/uv
	$(BIN)/uv sync --quiet --frozen --inexact --compile-bytecode
	@touch $@ $(VENV)/.ready
