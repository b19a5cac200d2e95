PYTHON ?= python3
BIN := .venv/bin
DATA ?= data/demo
PORT ?= 3000

demo: $(BIN)/.demo
	$(BIN)/corpusmill demo --data "$(DATA)"

ui: $(BIN)/.demo
	exec $(BIN)/corpusmill ui --data "$(DATA)" --port $(PORT)

test: $(BIN)/.dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy
	$(BIN)/python -m pytest -q -m "not slow" -n 2 --dist worksteal

test-slow: $(BIN)/.dev
	$(BIN)/python -m pytest -q -m slow -n 2 --dist worksteal --ignore tests/test_memory.py
	$(BIN)/python -m pytest -q -m slow tests/test_memory.py  # alone: it looks at memory many times a second

bench: $(BIN)/.dev
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[peers]"
	for name in encode build snapshot readers filters dedup decontamination packing stackexchange verify growth faults crashes; do PYTHONPATH=. $(BIN)/python benchmarks/$$name.py || exit 1; done

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(BIN)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	$(BIN)/corpusmill smoke --out-dir .venv/smoke > /dev/null  # compiles the kernels, once
	touch $@

$(BIN)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev,scoring]"
	touch $@ $(BIN)/.demo

.PHONY: demo ui test test-slow bench
