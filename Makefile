# Every target makes what it needs: a virtual environment with the pinned releases, in .venv unless VENV says otherwise.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PINS := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
READY = $(VENV)/.ready-$(PINS)
DEMO ?= corpus/vit.py
JOBS ?= 2

# CPU runs of small programs: more threads than cores only slow them down.
export JAX_PLATFORMS ?= cpu
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test lint pytest cases golden oracle-ops oracle-optims oracle-modules oracle public fuzz wild scripts \
	mutations bench bench-layers bench-steps fuzz-parser docs venv clean

help:
	@echo "make demo        convert a program of corpus/, show the diff, compare both programs (DEMO=file)"
	@echo "make test        lint and the whole test suite"
	@echo "make lint        ruff and mypy"
	@echo "make cases       the table of real-world traps"
	@echo "make golden      whole programs, converted and compared with torch"
	@echo "make oracle-ops  PyTorch's own test databases: pass / reported / crash / WRONG"
	@echo "make oracle      the same, with docs/oracle-ops.md"
	@echo "make oracle-optims  the same for its database of optimizers; writes docs/oracle-optims.md"
	@echo "make oracle-modules  the same for torch.nn's modules: docs/oracle-modules.md"
	@echo "make wild        models of public packages, converted unmodified and compared (downloads them): docs/wild.md"
	@echo "make scripts     public training scripts, converted and trained beside the originals: docs/scripts.md"
	@echo "make mutations   seeded faults: does verify notice each, and name its place"
	@echo "make public      whole public packages: every file parses, keeps its comments, converts once"
	@echo "make fuzz        random tensor programs, converted and compared: equal or reported"
	@echo "make bench       lines converted in a second, after make bench-layers and bench-steps"
	@echo "make bench-steps  how fast converted training steps are, against hand-written ones: docs/step-speed.md"
	@echo "make bench-layers  how fast the emitted layers are, against Flax's and hand-written ones: docs/layer-speed.md"
	@echo "make fuzz-parser the standard library and site-packages through the tool: no crash, nothing touched"
	@echo "make docs        docs/rules/, docs/codes.md and docs/sharp-bits.md"

demo: $(READY)
	@printf '\n$$ jaxmigrate convert %s\n\n' $(DEMO)
	@$(BIN)/jaxmigrate convert --fail-on never $(DEMO)
	@printf '\n$$ jaxmigrate verify %s\n\n' $(DEMO)
	@$(BIN)/jaxmigrate verify $(DEMO)

test: lint pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy migrate

pytest: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

cases: $(READY)
	$(BIN)/python tests/cases/score.py

golden: $(READY)
	$(BIN)/python tests/golden/run.py

oracle-optims: $(READY)
	$(BIN)/python tests/oracle/run.py optims --docs

oracle-ops: $(READY)
	$(BIN)/python tests/oracle/run.py ops

# All of op_db, and docs/oracle-ops.md written anew: a quarter of an hour.
oracle: $(READY)
	$(BIN)/python tests/oracle/run.py ops --docs

oracle-modules: $(READY)
	$(BIN)/python tests/oracle/run.py modules --docs

wild: $(READY)
	$(BIN)/python tests/public/run.py --docs

scripts: $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt matplotlib
	$(BIN)/python tests/scripts/run.py --docs

mutations: $(READY)
	$(BIN)/python tests/verify/faults.py

public: $(READY)
	$(BIN)/python tests/public/whole.py

fuzz: $(READY)
	$(BIN)/python tests/fuzz/run.py --programs 3000 --seconds 900 --jobs $(JOBS) --docs

bench: bench-layers bench-steps
	$(BIN)/python bench/throughput.py

bench-layers: $(READY)
	$(BIN)/python bench/layers.py --page docs/layer-speed.md

bench-steps: $(READY)
	$(BIN)/python bench/steps.py --page docs/step-speed.md

fuzz-parser: $(READY)
	$(BIN)/python tests/fuzz/parser.py

docs: $(READY)
	$(BIN)/python tools/write_docs.py

venv: $(READY)

$(READY):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt setuptools
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,verify,weights]'
	touch $(READY)

clean:
	rm -rf .venv build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
