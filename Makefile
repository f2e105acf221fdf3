# `make demo` and `make test` are all that a fresh machine needs: each first makes the one environment that they share.

PYTHON ?= python3
JOBS ?= 2

venv := .venv
bin := $(venv)/bin
stamp := $(venv)/.made
# The peers are large, and have an environment of their own. A version is pinned so: make bench PEERS=torch==2.13.0
bench_venv := .venv-bench
bench_bin := $(bench_venv)/bin
bench_stamp := $(bench_venv)/.made
PEERS ?=
W ?= w2

.PHONY: help demo test lint format fast slow exhaustive bench profile compile golden pages clean
.DEFAULT_GOAL := help
# The tests bring their own workers (JOBS; 0 is none); what runs beside them would only slow them down.
.NOTPARALLEL:

help:
	@echo "make demo     walk through every stage, then train the example"
	@echo "make test     all that CI runs: lint, then the fast and the slow tests"
	@echo "make lint     ruff, mypy and the import layers"
	@echo "make fast     the fast tests alone; slow: the slow ones alone; exhaustive: those that CI leaves out"
	@echo "make format   let ruff sort imports and lay out the code"
	@echo "make bench    measure beside PyTorch, JAX, tinygrad and NumPy, and rewrite docs/performance.md"
	@echo "make profile  where the time of a workload's plan goes: W=w2"
	@echo "make compile  what compilations cost, and rewrite docs/performance.md"
	@echo "make golden   rewrite the golden texts from what the code prints now"
	@echo "make pages    render README.md and docs/ from the code"
	@echo "make clean    remove the environment and every cache"

demo: $(stamp)
	$(bin)/topos walkthrough
	$(bin)/python examples/makemore/mlp.py
	$(bin)/python examples/digits/digits.py

test: lint fast slow

lint: $(stamp)
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports

fast: $(stamp)
	$(bin)/python -m pytest -n $(JOBS)

slow: $(stamp)
	$(bin)/python -m pytest -n $(JOBS) -m slow

exhaustive: $(stamp)
	$(bin)/python -m pytest -n $(JOBS) -m exhaustive

format: $(stamp)
	$(bin)/ruff check --select I --fix
	$(bin)/ruff format

bench: $(stamp) $(bench_stamp)
	$(bin)/python -m pytest benchmarks --benchmark-only --benchmark-autosave
	$(bench_bin)/python -m benchmarks --write

profile: $(stamp)
	$(bin)/python -m benchmarks.profile $(W)

compile: $(stamp)
	$(bin)/python -m benchmarks.compile --write

golden: $(stamp)
	$(bin)/python -m pytest --update-golden

pages: $(stamp)
	$(bin)/python scripts/documentation.py

clean:
	rm -rf $(venv) $(bench_venv) dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks

# Made anew, never mended, so that it holds what pyproject.toml says and nothing else. A half-made one has no stamp.
$(stamp): pyproject.toml src/topos/_version.py
	$(PYTHON) -m venv --clear $(venv)
	$(bin)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,examples,xla,iree]'
	touch $@

$(bench_stamp): pyproject.toml src/topos/_version.py
	$(PYTHON) -m venv --clear $(bench_venv)
	$(bench_bin)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]' $(PEERS)
	touch $@
