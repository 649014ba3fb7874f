# `make run` and `make test` set everything up on a machine with Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-slow bench bench-peers studies lint types clean

run: .venv/ready
	$(BIN)/tallchain reproduce

# Most of the time of the tests goes into compiling many small programs: here the quickest way, in test-slow the usual.
test: lint types
	TALLCHAIN_TEST_COMPILE=quick $(BIN)/pytest -n auto --dist worksteal -m "not slow"

test-slow: .venv/ready
	$(BIN)/pytest -n auto --dist load -m slow

# Speed. On a machine with an accelerator run python -m benchmarks.device as well.
bench: .venv/ready
	$(BIN)/python -m benchmarks.lockstep
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.walk
	$(BIN)/python -m benchmarks.checkpoints
	$(BIN)/python -m benchmarks.packed
	$(BIN)/python -m benchmarks.processes
	$(BIN)/python -m benchmarks.updates
	$(BIN)/python -m benchmarks.plan
	$(BIN)/python -m studies pages

# About an hour on 2 cores. make bench-peers COVERTYPE=covtype.npz has Covertype too; references: see benchmarks/peers.
bench-peers: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/python -m benchmarks.peers $(if $(COVERTYPE),--covertype $(COVERTYPE))
	$(BIN)/python -m benchmarks.peers --rows-against-n --draw
	$(BIN)/python -m benchmarks.time_to_answer --targets simulated flights
	$(BIN)/python -m benchmarks.mixed
	$(BIN)/python -m benchmarks.numpyro_bridge
	$(BIN)/python -m studies pages

# Errors and rows: every study, or make studies STUDY=tails. Hours on 2 cores; audit, defaults and pairs want a GPU.
STUDY ?= all
studies: .venv/ready
	$(BIN)/python -m studies $(STUDY)
	$(BIN)/python -m studies pages

lint: .venv/ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: .venv/ready
	$(BIN)/ty check

clean:
	rm -rf .venv dist .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tallchain needs Python 3.11 or newer; run make PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
