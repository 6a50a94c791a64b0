# Every target sets up what it needs first; `make setup` alone is idempotent. PYTHON=... names the
# Python that .venv is made with.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

.PHONY: help setup build demo docs test test-all test-wheels test-arm64 test-riscv64 check bench lock clean

help: ## what can be made
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## the environment in .venv and the local chains in contracts/node_modules
	@.ci/setup

build: setup ## contracts and tests, compiled, which else the first to need them does
	@contracts/tools/forge build
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq tests | sed '/: [0-9]*$$/d'

demo: setup ## a local chain, honest and cheating strangers, a trained model, a report
	@$(BIN)/atoll devnet demo

test: setup ## units, properties, contracts, real chains, two networks (some: make test PARTS="contracts")
	@$(BIN)/python .ci/tests.py --newcomer $(PARTS)

test-all: setup .kubo .chromium .triton .venv-docs/made .venv-notebook/made .venv-brownie .venv-halmos .venv-trl .hardhat ## these, every network, Kubo, Chromium, Triton, Brownie, Jupyter, attacks, fuzzers, proofs, mutants
	@$(BIN)/python .ci/tests.py $(PARTS)

# A Kubo node as a library (245 MB), for tests/integration/storage; it has wheels for these machines.
.kubo: | setup
ifneq (,$(filter Linux-x86_64 Linux-aarch64,$(shell uname -sm | tr ' ' -)))
	@TARGET=.kubo.new .ci/pip .venv kubo
	@mv .kubo.new .kubo
endif

# What compiles a GPU's kernels, which comes with torch where that is built for a GPU (190 MB to fetch,
# 690 MB unpacked): its interpreter and its compiler need none, and tests/integration/numerics/test_fused.py runs
# both.
.triton: | setup
ifneq (,$(filter Linux-x86_64 Linux-aarch64,$(shell uname -sm | tr ' ' -)))
	@TARGET=.triton.new .ci/pip .venv triton
	@mv .triton.new .triton
endif

# A headless Chromium for tests/integration/dashboard, where the machine has none: Debian's, unpacked.
.chromium:
	@.ci/chromium .chromium

# What is not on this machine is fetched into .pythons (Debian's, 17 MB each), not installed.
test-wheels: setup ## the wheel and its demo on Python 3.11 to 3.14 (some: make test-wheels PYTHONS=/path/python3.12)
	@$(BIN)/python .ci/wheels.py $(PYTHONS)

# What they need is fetched into .emulated (230 MB), not installed; no other target runs them.
test-arm64: setup ## the published digests on an emulated aarch64 (a quarter of an hour)
	@PIP=$(BIN)/pip tests/emulated/arm64 .emulated

test-riscv64: setup ## the kernels' acceptance calls on an emulated riscv64
	@PIP=$(BIN)/pip tests/emulated/riscv64 .emulated

# Jupyter, pandas and lm_eval (120 MB to fetch), for docs/first_job.ipynb and results that are judged:
# an environment that borrows the rest from .venv.
.venv-notebook/made: locks/notebook.txt locks/build.txt | setup
	@rm -rf .venv-notebook
	@$(BIN)/python -m venv .venv-notebook
	@.ci/pip .venv-notebook build notebook
	@.venv-notebook/bin/python -c 'import sysconfig, pathlib, sys; \
	  pathlib.Path(sysconfig.get_path("purelib"), "atoll.pth").write_text( \
	    f"import site; site.addsitedir({sys.argv[1]!r})\n")' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

.venv-docs/made: locks/docs.txt | setup
	@rm -rf .venv-docs
	@$(BIN)/python -m venv .venv-docs
	@.ci/pip .venv-docs docs
	@touch $@

docs: .venv-docs/made ## the docs as pages, in .site/pages, every link checked
	@.venv-docs/bin/python .ci/docs.py

# Brownie does, too: tests/integration/chain/test_brownie.py deploys with it.
.venv-brownie: | setup
	@contracts/tools/brownie_check --environment

# Hardhat's node (280 MB), for tests/integration/chain/test_other_nodes.py.
.hardhat: | setup
	@.ci/hardhat
	@touch $@

# Halmos pins versions of what .venv has; it makes its own environment where it is missing.
.venv-halmos: | setup
	@$(BIN)/python contracts/tools/halmos --environment

# Slither pins versions of what .venv has; it makes its own environment where it is missing.
.venv-slither: | setup
	@$(BIN)/python contracts/tools/slither --environment

check: setup ## lint, types, import rules, formatting, static analysis
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tests.vectors.record_release --check
	@contracts/tools/forge fmt --check
	@$(BIN)/python contracts/tools/export_artifacts.py --check
	@$(BIN)/python contracts/tools/slither

# byzfl wants torchvision and plotting; what bench/aggregate.py runs of it needs only scipy more than
# .venv has, so its environment borrows the rest from there.
.venv-byzfl: | setup
	@$(BIN)/python -m venv .venv-byzfl
	@.ci/pip .venv-byzfl byzfl
	@.venv-byzfl/bin/python -c 'import sysconfig, pathlib, sys; \
	  pathlib.Path(sysconfig.get_path("purelib"), "atoll.pth").write_text(sys.argv[1])' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

# As .venv-byzfl: what bench/rl_trl.py compares with.
.venv-trl: | setup
	@$(BIN)/python -m venv .venv-trl
	@.ci/pip .venv-trl trl
	@.venv-trl/bin/python -c 'import sysconfig, pathlib, sys; \
	  pathlib.Path(sysconfig.get_path("purelib"), "atoll.pth").write_text(sys.argv[1])' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

bench: setup .venv-byzfl .venv-trl ## the figures, as JSON lines
	@.ci/pip .venv fuzz 2>/dev/null \
	  || echo "bench: atheris has no wheel for this Python; Hypothesis fuzzes instead" >&2
	@for script in $(filter-out bench/compare.py, $(wildcard bench/*.py)); do $(BIN)/python $$script --json; done

# The resolver is not of this project: it has an environment of its own.
lock: ## renews locks/ and contracts/package-lock.json from pyproject.toml and package.json
	@test -x .venv-lock/bin/uv || { $(PYTHON) -m venv .venv-lock \
	  && .venv-lock/bin/pip -qq install --disable-pip-version-check uv==0.13.9; }
	@.venv-lock/bin/python .ci/lock.py

clean: ## removes what setup and the tools made, not your runs in .atoll
	rm -rf .venv .venv-brownie .venv-byzfl .venv-docs .venv-halmos .venv-lock .venv-notebook .venv-slither .venv-trl .hardhat contracts/hardhat/node_modules .kubo .kubo.new .triton .triton.new .chromium .pythons .site contracts/node_modules contracts/out contracts/cache
