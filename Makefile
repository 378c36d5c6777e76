# Everything that is built lives under .build/ and `make clean` removes it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
BUILD := .build
VENV := $(BUILD)/venv
BIN := $(VENV)/bin
TREE := $(BUILD)/collections/ansible_collections/hpcai/gpu_cluster
LINKS := galaxy.yml meta playbooks plugins roles extensions tests README.md changelogs
SOURCES := plugins tests

# What the lab is made of; see inventories/lab/README.md.
NODES ?= 2
GPUS ?= 0
SUITE ?= bookworm
LAB_VARS := -e lab_compute_nodes=$(NODES) -e lab_gpus=$(GPUS) -e lab_suite=$(SUITE)
INVENTORY := -i inventories/lab -i $(BUILD)/lab/hosts.yml
ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help host-packages venv lock format lint types unit test build clean lab lab-up lab-down lab-shell

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

host-packages: ## install what the lab needs from the distribution (Debian, Ubuntu)
	$(ROOT) apt-get update -qq
	$(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
	  aardvark-dns ca-certificates git iptables make mmdebstrap netavark openssh-client podman python3-venv rsync runc >/dev/null

venv: $(VENV)/.done $(TREE)/.done ## Python environment and collection links under .build/

$(VENV)/.done: requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

$(TREE)/.done: Makefile
	@mkdir -p $(TREE)
	@for f in $(LINKS); do ln -sfn "$(CURDIR)/$$f" "$(TREE)/$$f"; done
	@touch $@

lock: ## pin requirements/*.in with hashes
	$(BIN)/python -m venv $(BUILD)/uv && $(BUILD)/uv/bin/pip install --quiet uv
	cd requirements && for f in runtime dev; do \
	  ../$(BUILD)/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -o $$f.txt $$f.in; done

format: venv ## rewrite Python files in the house style
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: venv ## ruff and ansible-lint
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: venv ## mypy
	cd $(BUILD)/collections && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p ansible_collections.hpcai.gpu_cluster.plugins

unit: venv ## unit tests
	$(BIN)/pytest tests/unit

test: lint types unit ## what CI runs

clean: ## remove .build/ (run `make lab-down` first)
	rm -rf $(BUILD)
