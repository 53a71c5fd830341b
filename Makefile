# `make` sets everything up and runs the main job; `make test` sets everything up and runs the tests.
.DEFAULT_GOAL := all
.PHONY: all setup test test-deep check check-style estimate image artifact benchmark docs format clean help

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell $(name) -c 'import sys; sys.version_info < (3, 11) or print("$(name)")' 2>/dev/null)))
CORES ?= $(shell nproc)
CONFIG ?= config/quick.yaml
TARGET ?=
BIN := .venv/bin
# three on two cores: tests wait for ranks and for other programs a fifth of the time
AT_ONCE := --numprocesses 3 --dist loadfile --no-loadscope-reorder
export PATH := $(CURDIR)/$(BIN):$(PATH)

all: .venv/.ready ## set up, then run the quick configuration (or CONFIG=FILE): tables, figures, claims, MLflow runs (or TARGET="FILE ..." alone)
	snakemake --cores $(CORES) $(TARGET) --configfile "$(CONFIG)"

setup: .venv/.ready ## only set up

test: .venv/.checks ## set up, then run the tests (or all of TESTS="FILE FOLDER ...")
	python -m pytest -q $(or $(TESTS),$(AT_ONCE))

test-deep: .venv/.checks ## set up, then run the deep tests: kills, long conformance, Slurm, images, emulated networks
	python -m pytest -q --deep $(AT_ONCE) --ignore tests/testbed
	python -m pytest -q tests/testbed

check: check-style test test-deep ## every check: style, workflow, types, import contract, all tests

check-style: .venv/.checks ## the checks without the tests
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules
	snakemake --lint
	mypy
	lint-imports

estimate: .venv/.ready ## what CONFIG=FILE would run: number of jobs and estimated GPU hours; runs nothing
	@snakemake --cores $(CORES) --configfile "$(CONFIG)" --dry-run --quiet rules
	@gradsync estimate --config "$(CONFIG)"

image: .venv/.ready ## build the image that jobs run in on CPUs (needs Apptainer)
	snakemake --cores $(CORES) containers/cpu.sif

artifact: .venv/.ready ## one archive of the results (of CONFIG=FILE), which another run can be held against: results/gradsync-quick.tar.gz
	snakemake --cores $(CORES) --configfile "$(CONFIG)"
	gradsync artifact --config "$(CONFIG)"

benchmark: .venv/.ready ## speed of planning, training, collectives and emulated networks against their targets, into results/quick/benchmarks
	snakemake --cores 1 benchmark

docs: .venv/.docs ## build the pages of docs/ as a site: site/index.html; a link that leads nowhere ends it
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet

format: .venv/.checks ## write every file in the project's style
	ruff check --fix .
	ruff format .
	snakefmt Snakefile workflow/rules

clean: ## remove results and the environment
	rm -rf results site .venv .snakemake

help: ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 12

.venv/.ready: envs/requirements.txt envs/common.txt envs/constraints.txt pyproject.toml setup.py
	@test -n "$(PYTHON)" || { echo "gradsync needs Python 3.11 or newer: install it or run make PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r envs/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# on all cores, which pip does on one; what a package tests itself with, and models that nobody loads, wait for their use
	@$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/transformers/models/' .venv/lib >/dev/null || true
	@# Snakemake asks it for Slurm's commands whenever it starts, and not every system has it
	@command -v which >/dev/null || { printf '#!/bin/sh\ncommand -v "$$@"\n' >$(BIN)/which && chmod +x $(BIN)/which; }
	@touch $@

.venv/.checks: .venv/.ready envs/checks.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/checks.txt
	@touch $@

.venv/.docs: .venv/.ready envs/docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c envs/constraints.txt -r envs/docs.txt
	@touch $@
