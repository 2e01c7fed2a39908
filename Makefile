# Two commands matter: `make drill` (see a failover) and `make test` (trust it).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# A module of tests/. Not by PYTHONPATH: what it starts, such as the build of a package, would have
# it, too.
PROGRAM := $(abspath $(BIN))/python -m
TOOL   := cd tests && $(PROGRAM)
MACHINES := cd tests && FAILOVER_CLOUD_MACHINES=yes $(PROGRAM) testcloud
STAMP  := $(VENV)/.installed

# Tests start thousands of programs: each starts in half the time if Python keeps what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: drill test lint docs clean
.PHONY: test-cli test-deep test-package test-guests test-releases test-release test-removing
.PHONY: test-ansible test-ansible-cloud test-answers record-answers
.PHONY: test-ui pictures
.PHONY: test-spec spec test-simulation simulate simulate-mutants
.PHONY: drills faults fault-tests fault-drills mutants test-broker test-octavia test-designate
.PHONY: test-keystone
.PHONY: test-cloud test-cloud-together test-cloud-alone test-outages
.PHONY: cloud-install cloud-up cloud-down cloud-status
.PHONY: test-machines test-machines-down test-losses
.PHONY: machines-install machines-up machines-down machines-soak
.PHONY: bench bench-cloud bench-cloud-short bench-machines
.PHONY: release wheels agent-deb agent-rpm agent-zipapp

$(STAMP): setup.cfg pyproject.toml agent/pyproject.toml
	@echo "$(VENV): installing Python's uv, which installs the rest"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	@echo "$(VENV): installing this package, Mistral, OpenStack's clients and the tests' tools (500 MB, a minute or two)"
	$(BIN)/uv pip install --python $(BIN)/python -e agent -e '.[test,lint,docs]'
	touch $@

drill: $(STAMP)
	$(BIN)/failover drill

# Debian's fence agents, Ceph, and two proxies are installed if they are missing and you are root. LESS: options
# that leave out what another lane of the same run does.
test: $(STAMP)
	$(TOOL) support.fence_agents
	$(TOOL) support.proxies
	$(BIN)/pytest -n 5 --dist worksteal --durations=10 $(LESS)

# The contract on the emulated cloud, and its answers beside those that the real services gave.
ANSWERS := $(abspath build/answers)
test-answers: $(STAMP)
	rm -rf $(ANSWERS)/emulated
	$(BIN)/pytest -q --record $(ANSWERS)/emulated -n 2 --dist loadfile tests/contract
	$(TOOL) contract.differences $(ANSWERS)/emulated

# What the real services answer, for test-answers: after a change of the contract or of the services.
record-answers: cloud-up
	rm -rf $(ANSWERS)/real
	$(BIN)/pytest -q --cloud=real --record $(ANSWERS)/real --timeout=900 -n 4 --dist loadfile \
	  -m 'not outages and not alone' --no-loadscope-reorder tests/contract
	$(TOOL) contract.differences --keep $(ANSWERS)/real

# The specification in TLA+: small models, a mistake in each of some more, and the journals of drills
# and of simulated plays.
# Java is Debian's, installed if it is missing and you are root.
test-spec: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e agent -e '.[spec]'
	$(TOOL) support.java
	$(BIN)/pytest -m spec tests/spec -n 1 --timeout=3700 --durations=10

# Its larger models: the table of docs/safety.md, an hour. MODELS: parts of their names.
spec: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e agent -e '.[spec]'
	$(TOOL) spec $(MODELS)

# The whole system in one thread and virtual time. SEED: the first; SECONDS: for how long; KEEP: only
# these moves of one play.
simulate: $(STAMP)
	cd tests && ../$(BIN)/python -m simulation $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(KEEP),--keep $(KEEP)) $(if $(VERBOSE),--verbose)

# Deliberate faults of the product, each of which it has to find: the table of docs/safety.md.
# MUTANTS: only these; PLAYS with each at most.
simulate-mutants: $(STAMP)
	$(TOOL) simulation.mutants $(MUTANTS) $(if $(PLAYS),--plays $(PLAYS))

# Forty plays, those that ever failed, and each of the faults.
test-simulation: $(STAMP)
	$(BIN)/pytest -m simulated tests/simulation -n 2 --dist worksteal --durations=5

# The command line before a Mistral that is served, in a process of its own.
test-cli: $(STAMP)
	$(BIN)/pytest -m served tests/cli -n 3 --dist worksteal --durations=10

# The contract of the cloud, and whole failovers, on real services: see docs/developing.md.
test-cloud:
	$(MAKE) test-cloud-together
	$(MAKE) test-cloud-alone

# Most of these tests wait for the cloud most of the time, so they run beside each other.
test-cloud-together: cloud-up
	$(BIN)/pytest --cloud=real --timeout=900 -m 'not outages and not alone and not ansible' \
	  -n 4 --dist loadfile --no-loadscope-reorder --durations=15 tests/real_cloud tests/contract

# Those that stop what the others need.
test-cloud-alone: cloud-up
	$(BIN)/pytest --cloud=real --timeout=900 -m 'not outages and alone' --durations=15 tests/real_cloud

# The contract of load balancers on a real Octavia API; it needs mariadbd.
test-octavia: $(STAMP)
	$(BIN)/pytest --octavia --timeout=900 tests/contract/test_load_balancers.py -n 0

# The contract of DNS names on a real Designate.
test-designate: $(STAMP)
	$(BIN)/pytest --designate --timeout=900 tests/contract/test_dns_records.py -n 0

# Tokens of every kind, and access rules, of a real Keystone, before the emulated services.
test-keystone: $(STAMP)
	$(BIN)/pytest --keystone --timeout=900 tests/contract/test_keystone.py -n 0

# Each service of the test cloud away for 30 s and 5 minutes, processes that die at a task of a
# project's own chain, and what people ordinarily do to a group's parts: an hour and a half.
test-outages: $(STAMP)
	$(TOOL) testcloud up
	$(BIN)/pytest --cloud=real --timeout=1800 -s -m outages tests/real_cloud

# Whole programs, as a user starts them: drills of every kind, servers, the tutorial, completion in
# zsh and fish, senders of alarms (Debian's, installed if they are missing and you are root).
drills: $(STAMP)
	$(TOOL) support.shells
	$(TOOL) support.senders
	$(BIN)/pytest -m drills tests -n 3 --dist loadfile --timeout=300 --durations=10

# What dies, hangs or loses its rights in the middle. tests/faults starts Mistrals of its own, and a
# process has one at most, so they run by themselves. They mostly wait for leases to end.
faults:
	$(MAKE) fault-tests
	$(MAKE) fault-drills

fault-tests: $(STAMP)
	$(BIN)/pytest -m faults tests --ignore=tests/faults -n 4 --dist worksteal --durations=10

fault-drills: $(STAMP)
	$(BIN)/pytest -m faults tests/faults -n 4 --dist worksteal --durations=10

# The properties of the core, and every interleaving, further than make test searches them.
test-deep: $(STAMP)
	HYPOTHESIS_PROFILE=deep $(BIN)/pytest -m deep tests/convergence -n 2 --dist worksteal \
	  --timeout=1800 --durations=10

# The agents and their channel on a real RabbitMQ, and everybody killed at every point.
test-broker: $(STAMP)
	$(TOOL) testbroker install
	$(BIN)/pytest -m broker tests/broker -n 2 --durations=10

# In a real Chromium (Debian's, installed if it is missing and you are root): the web page, and what
# a web page of others can do to the API. Screenshots in build/ui.
test-ui: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e agent -e '.[browser]'
	$(TOOL) support.chromium
	$(BIN)/pytest -m browser tests/ui tests/security -n 0 --durations=5

# The pictures of the documentation, from these tests.
pictures: test-ui
	cp build/ui/docs/*.png docs/

# The agent for guests, in dist: see docs/agent.md. agent-rpm needs rpmbuild.
agent-deb agent-rpm agent-zipapp: $(STAMP)
	$(BIN)/python -m deploy.$(subst -,_,$@) dist

# Both wheels, in dist.
wheels: $(STAMP)
	$(BIN)/python -m deploy.wheels dist

# All of a release, in dist: both wheels and source distributions, the change log, SBOMs, hashes.
# VERSION=1.0.0 writes the version before; commit that.
release: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e agent -e '.[release]'
	$(if $(VERSION),$(BIN)/python -m deploy.version $(VERSION))
	$(BIN)/python -m deploy.release dist

# It, on every Python from 3.9 on that is installed here (pyenv's too).
test-guests: $(STAMP)
	$(BIN)/pytest -m guests tests/installation -n 2 --durations=5

# A playbook of the real Ansible beside a group, on the emulated cloud. Of the package ansible only
# the collection is needed, and it needs an SDK of its time.
ANSIBLE := .ansible
$(ANSIBLE)/.installed:
	python3 -m venv $(ANSIBLE)
	$(ANSIBLE)/bin/pip install -q 'ansible-core==2.19.*' 'openstacksdk==4.4.0'
	$(ANSIBLE)/bin/pip download -q --no-deps -d $(ANSIBLE) 'ansible==12.3.0'
	$(ANSIBLE)/bin/python -c "import glob, zipfile; \
	z = zipfile.ZipFile(glob.glob('$(ANSIBLE)/ansible-*.whl')[0]); \
	z.extractall('$(ANSIBLE)', [n for n in z.namelist() if '/openstack/' in n])"
	touch $@

test-ansible: $(STAMP) $(ANSIBLE)/.installed
	$(BIN)/pytest -m ansible -n 0 tests/workflows/test_a_playbook_runs_again.py tests/docs/test_ansible.py

# The same playbook on the real services of the test cloud.
test-ansible-cloud: cloud-up $(ANSIBLE)/.installed
	$(BIN)/pytest --cloud=real -m ansible -n 0 tests/real_cloud/test_a_playbook_runs_again.py

# Its packages, in a Debian 11, 12 and 13 of their own; images where something builds them (Debian, root).
test-package: $(STAMP)
	command -v mmdebstrap rpmbuild >/dev/null || apt-get install -qy --no-install-recommends mmdebstrap rpm
	$(TOOL) testbroker install
	$(BIN)/pytest -m package tests/installation -n 0 --durations=5

# The package in the Mistral of each release, at that release's upper constraints and at our lower
# bounds: some three minutes each. It needs pyenv's or Debian's Pythons, and mariadbd.
test-releases: $(STAMP)
	$(TOOL) testbroker install
	$(BIN)/pytest -m releases tests/installation/test_releases.py -n 0 --durations=5

# The package leaves a Mistral, as docs/install.md says.
test-removing: $(STAMP)
	$(TOOL) testbroker install
	$(BIN)/pytest -m releases tests/installation/test_removing.py -n 0

# In one of them: RELEASE=2024.2, or another one, or "lowest".
RELEASE ?= 2024.2
test-release: $(STAMP)
	$(TOOL) testbroker install
	$(BIN)/pytest -m releases tests/installation/test_releases.py -n 0 -k '$(RELEASE)' --durations=5

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file agent/pyproject.toml
	$(BIN)/vermin --quiet --violations --target=3.9- --exclude typing.TypeGuard agent/mistral_failover
	$(BIN)/lint-imports
	$(BIN)/failover workflows validate --strict workflows/*.yaml

# In build/html; a warning fails.
docs: $(STAMP)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/html

# All parts, or PARTS="core many".
bench: $(STAMP)
	$(TOOL) bench $(PARTS)

# VOLUMES="1 10", ROUNDS=3; the table is for docs/capacity.md.
bench-cloud: $(STAMP)
	$(TOOL) testcloud up
	$(TOOL) bench.cloud $(VOLUMES) $(if $(ROUNDS),--rounds $(ROUNDS))

# Whether it still runs; its figures say nothing.
bench-cloud-short:
	$(MAKE) bench-cloud VOLUMES=1 ROUNDS=1

mutants: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e agent -e '.[mutants]'
	$(TOOL) bench.mutants $(MODULES)

# What cloud-up does first, and machines-up too; nothing is started.
cloud-install: $(STAMP)
	$(TOOL) testcloud install

cloud-up: $(STAMP)
	$(TOOL) testcloud up

cloud-down: $(STAMP)
	$(TOOL) testcloud down

cloud-status: $(STAMP)
	$(TOOL) testcloud status

# Real guests, disks and power switches: see docs/machines.md. As root, on Debian 12.
machines-install: $(STAMP)
	$(MACHINES) install

machines-up: $(STAMP)
	$(MACHINES) up

machines-down: $(STAMP)
	$(MACHINES) down

# Three files at a time, each in a rack of its own. In the order in which they are written, most plays
# find the service of an earlier one.
test-machines: machines-up
	$(BIN)/pytest -m machines tests/machines -n 3 --dist loadfile -p no:randomly --timeout=600 \
	  --durations=0 --ignore=tests/machines/test_comparison.py

# Take it down, and look for what is left of it.
test-machines-down: machines-up
	$(BIN)/pytest -m machines tests/machines/test_down.py -n 0 --take-down

# One fault after the other, for MINUTES, drawn from SEED.
machines-soak: machines-up
	$(BIN)/pytest -m machines tests/machines/test_soak.py -n 0 -s --timeout=0 --soak-minutes=$(or $(MINUTES),60) $(if $(SEED),--soak-seed=$(SEED))

# The outage of one loss of power: ours, and the field's.
bench-machines: machines-up
	$(BIN)/pytest -m machines tests/machines/test_comparison.py -n 0 -s --timeout=1200

# The two that count most.
test-losses: machines-up
	$(BIN)/pytest -m machines tests/machines/test_lost_hosts.py tests/machines/test_storage.py -n 2 --dist loadfile \
	  -k 'power_loss_and or partition_while' --timeout=600

clean:
	rm -rf $(VENV) .ansible build dist *.egg-info actions/*.egg-info agent/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis drill-state .broker
