# Everything that is built lives under .build/ and `make clean` removes it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# The distribution's where it will do: it is built with profiles, and one that somebody compiled takes a quarter longer as a rule.
PYTHON ?= $(shell for python in /usr/bin/python3 python3; do \
  "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done || echo python3)
BUILD := .build
VENV := $(BUILD)/venv
BIN := $(VENV)/bin
AZURE := $(BUILD)/azure
AZURE_MODULES := ansible_collections.azure.azcollection.plugins.modules
GALAXY := $(BUILD)/galaxy
SITE := $(BUILD)/site
TREE := $(BUILD)/collections/ansible_collections/hpcai/gpu_cluster
LINKS := galaxy.yml meta lab playbooks plugins roles extensions tests README.md changelogs
# The one that the venv was made with.
PYTHON_VERSION = $(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
SOURCES := plugins roles lab tests benchmarks extensions site_template

HOST_PACKAGES := aardvark-dns ca-certificates debian-archive-keyring git iptables mmdebstrap netavark openssh-client \
  podman python3-venv runc shellcheck
# make lab BACKEND=vm
MACHINE_PACKAGES := cpio e2fsprogs qemu-system-x86 qemu-utils xz-utils
# Real programs that tests start: without QEMU the scenarios on machines fail, without the others tests are skipped.
TEST_PACKAGES := fio iproute2 openmpi-bin systemd $(MACHINE_PACKAGES)

# What the lab is made of; see lab/README.md.
NODES ?= 2
GPUS ?= 0
SUITE ?= bookworm
BACKEND ?= container
PURGE ?= false
SKU ?=
CONTAINERS ?= false
MINUTES ?= 5
HOSTS ?= 3,30,100
CONTAINER_VARS := $(if $(filter true,$(CONTAINERS)),-e @lab/containers.yml)
LAB_VARS := -e lab_backend=$(BACKEND) -e lab_compute_nodes=$(NODES) -e lab_gpus=$(GPUS) -e lab_suite=$(SUITE) \
  $(if $(SKU),-e lab_sku=$(SKU)) $(CONTAINER_VARS)
LAB_PACKAGES := $(HOST_PACKAGES) $(if $(filter vm,$(BACKEND)),$(MACHINE_PACKAGES))
INVENTORY := -i lab/inventory -i $(BUILD)/lab/hosts.yml
PLAYBOOK := $(BIN)/ansible-playbook
SUITE_OF_TESTS := $(BIN)/python tests/tools/suite.py
SCENARIOS ?= default

.PHONY: agent azure-faults azure-newest-venv azure-venv benchmark build check check-stack clean docs docs-site execution-environment \
  format fuzz galaxy-import galaxy-venv help host-packages \
  integration lab lab-down lab-shell lab-up lint lock lock-pytorch missing-packages molecule other-pythons sanity test test-all test-gpu \
  test-packages test-rest training training-cuda training-table types unit venv

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## The rehearsal

# One name for the whole rehearsal, so that the report shows its stages as one run. A report is drawn of failures too.
lab: export HPCAI_RUN := $(shell date -u +%Y%m%dT%H%M%SZ)
lab: lab-up ## bring up, configure, certify and train on a real Slurm cluster on this machine (NODES, GPUS, SUITE, SKU, BACKEND, CONTAINERS)
	@$(PLAYBOOK) $(INVENTORY) $(CONTAINER_VARS) playbooks/site.yml || \
	  { status=$$?; $(PLAYBOOK) $(INVENTORY) playbooks/report.yml; exit $$status; }
	@echo "  Report      $(CURDIR)/$(BUILD)/report/report.html"
	@echo "  A shell     make lab-shell"
	@echo "  Remove it   make lab-down"

lab-up: missing-packages venv ## only start the lab's nodes
	@$(PLAYBOOK) $(LAB_VARS) lab/up.yml

lab-down: venv ## remove what make lab made, and nothing else (PURGE=true: the node image too)
	@$(PLAYBOOK) -e lab_purge=$(PURGE) lab/down.yml

lab-shell: ## a shell on the lab's login node, as an ordinary user
	@if [ -d $(BUILD)/lab/machines ]; then lab/roles/lab_machines/files/machine ssh ctl su - trainer; else \
	  podman exec --interactive --tty --user trainer --workdir /home/trainer --env TERM hpcai-lab-ctl bash -l; fi

## Development

venv: $(VENV)/.done $(TREE)/.done ## Python environment and collection links under .build/

# What an environment's programs do not spend on garbage.
lean = cp tests/tools/lean.pth $(1)/lib/python3*/site-packages

# uv compiles nothing, and container images often forbid Python to keep what it compiled: here what is run is compiled, of Azure's
# SDKs the two thousand of their 47,000 files that every module of azure.azcollection reads, which takes it ten seconds otherwise.
$(VENV)/.done: requirements/uv.txt requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(call lean,$(VENV))
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(BIN)/uv pip install --quiet --require-hashes --python $(BIN)/python -r requirements/dev.txt
	$(BIN)/python -m compileall -q -j 0 -x '/ansible_(collections|test)/' $(VENV)/lib
	@touch $@

azure-venv: $(AZURE)/.done ## the same with Azure's SDKs, under .build/azure, for provision.yml and destroy.yml

$(AZURE)/.done: requirements/azure.txt | venv
	$(PYTHON) -m venv --without-pip $(AZURE)
	$(call lean,$(AZURE))
	$(BIN)/uv pip sync --quiet --require-hashes --python $(AZURE)/bin/python requirements/azure.txt
	env -u PYTHONDONTWRITEBYTECODE $(AZURE)/bin/python -c 'from $(AZURE_MODULES) import azure_rm_resourcegroup, azure_rm_virtualmachine'
	@touch $@

azure-newest-venv: $(AZURE)-newest/.done ## the newest azure-mgmt-compute, for the tests of the preflight

$(AZURE)-newest/.done: requirements/azure-newest.txt | venv
	$(PYTHON) -m venv --without-pip $(AZURE)-newest
	$(call lean,$(AZURE)-newest)
	$(BIN)/uv pip sync --quiet --require-hashes --python $(AZURE)-newest/bin/python requirements/azure-newest.txt
	env -u PYTHONDONTWRITEBYTECODE $(AZURE)-newest/bin/python -c 'import azure.identity, azure.mgmt.compute.models'
	@touch $@

$(TREE)/.done: Makefile
	@mkdir -p $(TREE)
	@for f in $(LINKS); do ln -sfn "$(CURDIR)/$$f" "$(TREE)/$$f"; done
	@touch $@

host-packages: ## install what the lab and the tests need from the distribution (Debian, Ubuntu)
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(LAB_PACKAGES) >/dev/null

test-packages: host-packages ## host-packages, and what tests need besides (QEMU, fio, Open MPI)
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(TEST_PACKAGES) >/dev/null

# A fresh machine needs no other command than `make lab`.
missing-packages:
	@dpkg-query --show $(LAB_PACKAGES) >/dev/null 2>&1 || $(MAKE) host-packages

lock: ## pin requirements/*.in with hashes
	$(PYTHON) -m venv $(BUILD)/uv && $(BUILD)/uv/bin/pip install --quiet uv
	cd requirements && for f in uv runtime dev docs galaxy azure azure-newest; do \
	  ../$(BUILD)/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -o $$f.txt $$f.in; done

# Each build's lock, for the oldest Python that has wheels of all of it, with the digests of what Linux with glibc can install.
LOCKS := $(addprefix pytorch/files/,cpu:3.11 cu126:3.10 cu128:3.10 cu130:3.10 cu132:3.11 uv:3.10 nvcc-cu130:3.10 nvcc-cu132:3.11) \
  training_extras/files/tools:3.10
lock-pytorch: venv ## pin *.in of the roles pytorch and training_extras with hashes
	cd roles && for lock in $(LOCKS); do \
	  name=$${lock%:*}; uv="$(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version $${lock#*:}"; \
	  case $$name in \
	    */cpu) uv="$$uv --index https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match" ;; \
	    */nvcc-*) uv="$$uv --no-deps" ;; \
	  esac; \
	  $$uv --generate-hashes --no-header --no-annotate -o $$name.txt $$name.in && \
	  $$uv --constraint $$name.txt --format pylock.toml -o $(CURDIR)/$(BUILD)/pylock.toml $$name.in && \
	  $(CURDIR)/$(BIN)/python $(CURDIR)/tests/tools/linux_locks.py $$name.txt $(CURDIR)/$(BUILD)/pylock.toml $${lock#*:} || exit 1; done

format: venv ## rewrite Python files in the house style
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: venv ## ruff, ansible-lint, shellcheck
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python tests/tools/lint.py --offline -q
	shellcheck .ci/run tests/tools/ansible_test benchmarks/*.sh roles/*/files/*.sh lab/roles/*/files/*.sh extensions/molecule/*/*.sh tests/stand_ins/*.sh

types: venv ## mypy
	cd $(BUILD)/collections && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p ansible_collections.hpcai.gpu_cluster.plugins \
	  -p ansible_collections.hpcai.gpu_cluster.lab.machine

unit: venv ## unit tests
	$(BIN)/pytest -n auto tests/unit

integration: venv azure-venv azure-newest-venv ## modules and roles against emulated tools and services
	$(BIN)/pytest -n auto tests/integration

test-gpu: venv ## the measuring modules on this machine's GPUs; changes no clocks (see tests/gpu/README.md)
	$(BIN)/pytest tests/gpu -rs

training: venv ## build DeepSpeed, fairscale and Megatron, and train with them on two hosts; downloads what is not there yet
	$(BIN)/pytest -p no:xdist -rs tests/training

training-cuda: export HPCAI_TRAINING_CUDA := 1
training-cuda: venv ## compile Apex and DeepSpeed for GPUs on this machine without any, by NVIDIA's packages; 3 GB of downloads
	$(BIN)/pytest -p no:xdist -rs tests/training/test_cuda_builds.py

training-table: venv ## draw the table of docs/training_stack.md from what make training found
	$(BIN)/python tests/tools/torch_stack.py table

check-stack: venv ## ask the package index whether what the training stack pins is there and says what we say of it
	$(BIN)/python tests/tools/torch_stack.py check

fuzz: venv ## feed the parsers broken logs (MINUTES), and everything that is generated with many more examples
	$(BIN)/python tests/fuzz/run.py --minutes $(MINUTES)
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -n auto -m hypothesis tests/unit

docs: venv ## draw docs/sku_profiles.md from the profiles, and what roles need and take from their specifications
	PYTHONPATH=$(BUILD)/collections $(BIN)/python tests/tools/sku_profiles.py
	$(BIN)/python tests/tools/role_needs.py
	$(BIN)/python tests/tools/role_readmes.py

# Other collections' names come from the package ansible of the environment above.
docs-site: venv $(BUILD)/docs/.done ## the pages and a reference as a site that can be searched, .build/site/html; offline, warnings are errors
	ANSIBLE_COLLECTIONS_PATH="$(CURDIR)/$(BUILD)/collections:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	  $(BUILD)/docs/bin/python tests/tools/docs_site.py $(SITE)

$(BUILD)/docs/.done: requirements/docs.txt | venv
	$(PYTHON) -m venv --without-pip $(BUILD)/docs
	$(call lean,$(BUILD)/docs)
	$(BIN)/uv pip sync --quiet --require-hashes --python $(BUILD)/docs/bin/python requirements/docs.txt
	@touch $@

galaxy-venv: $(GALAXY)/.done ## ansible-builder and galaxy-importer, under .build/galaxy

$(GALAXY)/.done: requirements/galaxy.txt | venv
	$(PYTHON) -m venv --without-pip $(GALAXY)
	$(call lean,$(GALAXY))
	$(BIN)/uv pip sync --quiet --require-hashes --python $(GALAXY)/bin/python requirements/galaxy.txt
	@# Galaxy's is compiled, and the importer starts Ansible a hundred times.
	$(GALAXY)/bin/python -m compileall -q -j 0 $(GALAXY)/lib
	@touch $@

# Which inputs make another image, and what stands for Galaxy and for registries: tests/tools/execution_environment.py.
execution-environment: venv galaxy-venv ## build site_template's image from packages, if it is not there, check it, and run stages in it
	HPCAI_TEST_IMAGE=$$($(BIN)/python tests/tools/execution_environment.py build) && export HPCAI_TEST_IMAGE && \
	  $(BIN)/pytest -p no:xdist -rs $(addprefix tests/integration/playbooks/test_,stages_apart.py stages_on_nodes.py provision_job.py)

other-pythons: venv ## syntax and unit tests with Python 3.12 of Ubuntu's packages, with the oldest and the newest ansible-core
	$(BIN)/python tests/tools/other_pythons.py

# What only ansible-test can do; the unit tests are pytest's.
sanity: venv ## ansible-test sanity on a copy of the tree, and imports by the oldest Python that nodes may have
	tests/tools/ansible_test sanity --python $(PYTHON_VERSION) --skip-test import
	@tests/tools/ansible_test imports $(PYTHON_VERSION)

azure-faults: venv azure-venv ## faults at each step into Azure, then what is left of them (hours; FAULT: part of a name)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/molecule create --scenario-name azure
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/molecule prepare --scenario-name azure
	PYTHONPATH=tests/tools:extensions/molecule/shared $(BIN)/python extensions/molecule/azure/tests/faults.py $(FAULT)
	$(if $(FAULT),,HPCAI_TEST_SLOW=1 $(BIN)/pytest tests/integration/test_azure_infra.py tests/integration/test_azure_modules.py)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/molecule destroy --scenario-name azure

benchmark: venv ## configure.yml beside a bare shell script, as ratios (HOSTS)
	$(BIN)/python benchmarks/configure.py --hosts $(HOSTS)

agent: venv ## the node agent as one file, .build/hpcai-agent.pyz
	@PYTHONPATH=$(BUILD)/collections $(BIN)/python -c 'import sys; from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import main; sys.exit(main(sys.argv[1:]))' $(BUILD)/hpcai-agent.pyz

build: venv ## the tarball for ansible-galaxy collection install
	$(BIN)/python tests/tools/tarball.py $(BUILD)

galaxy-import: build galaxy-venv ## import the tarball as Galaxy does, and fail at whatever its importer warns of
	$(BIN)/python tests/tools/galaxy_import.py $(BUILD)/hpcai-gpu_cluster-$$(sed -n 's/^version: //p' galaxy.yml).tar.gz

## All of it

# Which parts these are, how long they take and what they need: tests/tools/suite.py --list.
check: venv ## lint, types, unit tests: for the inner loop, five minutes on two cores
	@$(SUITE_OF_TESTS) check

test: venv azure-venv azure-newest-venv ## check, integration, and the whole way on systemd nodes: a quarter of an hour
	@$(SUITE_OF_TESTS) test

test-rest: venv azure-venv ## what test-all has beside test: sanity, and every other scenario
	@$(SUITE_OF_TESTS) rest

test-all: venv azure-venv azure-newest-venv ## everything: the better part of an hour
	@$(SUITE_OF_TESTS) all

molecule: venv azure-venv ## some scenarios, side by side (SCENARIOS: their names)
	@$(SUITE_OF_TESTS) $(SCENARIOS)

clean: ## remove .build/ (take the lab down first)
	rm -rf $(BUILD)
