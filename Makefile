PYTHON ?= python3
BIN := .venv/bin
DATA ?= data/demo
PORT ?= 3000
# `.half` marks an unfinished installation, after which .venv is created again.
# Most modules of the dependencies are never imported. Compiling bytecode only at an import saves a third of the time.
INSTALL = touch .venv/.half && rm -f $(BIN)/.demo $(BIN)/.dev && $(BIN)/python -m pip install -q --no-compile -c constraints.txt

# Tests run hundreds of commands, which start faster with bytecode.
unexport PYTHONDONTWRITEBYTECODE

demo: $(BIN)/.demo
	$(BIN)/corpusmill demo --data "$(DATA)"

ui: $(BIN)/.demo
	exec $(BIN)/corpusmill ui --data "$(DATA)" --port $(PORT)

test: $(BIN)/.dev
	@echo "format, lint, types, tests: ten to twenty minutes on two cores; make test-quick runs fewer"
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(MAKE) --no-print-directory -j 2 types quick FOLDERS=

# Without its cache, mypy needs one core for half a minute. Meanwhile, the tests use the other one.
types:
	$(BIN)/mypy

quick:
	MAKEFLAGS= $(BIN)/python -m pytest -q -m "not slow and not proof and not real" -n 3 --dist worksteal $(FOLDERS)

test-quick: $(BIN)/.dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(MAKE) --no-print-directory -j 2 types quick FOLDERS="tests/spine tests/corpus tests/build tests/trust tests/test_layout.py tests/test_readme.py"

hooks: $(BIN)/.dev  # the checks that `pre-commit install` runs before each commit
	$(BIN)/pre-commit run --all-files

test-slow: $(BIN)/.dev
	$(BIN)/python -m pytest -q -m "slow and not proof and not real" -n 3 --dist worksteal --ignore tests/test_sampled_memory.py
	$(BIN)/python -m pytest -q -m slow tests/test_sampled_memory.py  # alone, because a busy machine delays its samples

# Tests on real samples, which are not in the repository. No other target reads them.
test-real: samples $(BIN)/.dev
	CORPUSMILL_TEST_SAMPLES="$(abspath $(SAMPLES))" $(BIN)/python -m pytest -q -m "real and not proof" -n 2 --dist worksteal

samples:
	@[ -n "$(SAMPLES)" ] && [ -d "$(SAMPLES)" ] || { echo "SAMPLES must be a folder of real samples, got '$(SAMPLES)': make test-real SAMPLES=FOLDER" >&2; exit 1; }

# All cases of which other tests run a seeded sample. Takes an hour.
proof: $(BIN)/.dev
	$(BIN)/python -m pytest -q -m "proof and not real" -n 2 --dist worksteal --timeout 7200

# Workloads under faults for two thousand seeds, 2 s each on two cores. SEED=123 repeats one seed, SEEDS=200 runs fewer.
soak: $(BIN)/.dev
	$(BIN)/python tests/harness/swarm.py --seeds $(or $(SEEDS),2000) $(if $(SEED),--seed $(SEED))

bench: $(BIN)/.dev
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[peers]"
	for name in encode build engines snapshot readers filters stage_a dedup decontamination packing shards stage2 pools scoring stackexchange verify growth faults crashes flips compared; do PYTHONPATH=. $(BIN)/python benchmarks/$$name.py || exit 1; done

fuzz: $(BIN)/.dev  # 20,000 edited files for all readers, in five minutes
	PYTHONPATH=. $(BIN)/python benchmarks/fuzz_files.py --cases $(or $(CASES),20000) --seed $(or $(SEED),0)

mutants: $(BIN)/.dev  # small changes of the sources, and the tests that detect them; seconds each on an idle core
	PYTHONPATH=. $(BIN)/python benchmarks/mutants.py --mutants $(or $(N),40) --seed $(or $(SEED),1)

evidence: $(BIN)/.dev  # writes docs/evidence.md from the results in build/evidence
	PYTHONPATH=. $(BIN)/python benchmarks/evidence.py

lock: $(BIN)/.dev  # after each change of constraints.txt or of a dependency
	$(BIN)/python .ci/lock.py

docs: $(BIN)/.dev  # builds the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "to read it, with search: $(BIN)/python -m http.server --directory site"

tree: $(BIN)/.dev  # updates the list of modules in AGENTS.md
	$(BIN)/python .ci/tree.py

# venv installs pip last. A Python that cannot create an environment is named before anything is written.
$(BIN)/pip: $(if $(wildcard .venv/.half),anew)
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d, corpusmill needs 3.11 or newer: make PYTHON=python3.11" % sys.version_info[:2])'
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { echo "$(PYTHON) can't make a .venv: install its venv package (apt: python3-venv), or make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv

$(BIN)/.demo: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) -e ".[languages,tokenizers]" && rm .venv/.half
	$(BIN)/corpusmill smoke --out-dir .venv/smoke > /dev/null && touch $@  # compiles the kernels, once

$(BIN)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) -e ".[dev,scoring]" && rm .venv/.half
	touch $@ $(BIN)/.demo

.PHONY: demo ui test test-quick types quick hooks test-slow test-real samples proof soak bench fuzz mutants evidence lock docs tree anew
