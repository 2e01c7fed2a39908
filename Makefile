# Two commands matter: `make drill` (see a failover) and `make test` (trust it).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: drill test faults lint bench mutants clean

$(STAMP): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[test,lint]'
	touch $@

drill: $(STAMP)
	$(BIN)/failover drill

test: $(STAMP)
	$(BIN)/pytest -n 2 --dist loadfile

faults: $(STAMP)
	$(BIN)/pytest -m faults tests/faults -n 2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/failover workflow validate workflows/*.yaml

bench: $(STAMP)
	$(BIN)/python -m bench

mutants: $(STAMP)
	$(BIN)/uv pip install --quiet --python $(BIN)/python -e '.[mutants]'
	$(BIN)/python -m bench.mutants

clean:
	rm -rf $(VENV) build dist *.egg-info actions/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis drill-state
