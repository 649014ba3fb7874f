# `make run` and `make test` set everything up on a machine with Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-slow bench bench-peers lint types clean

run: .venv/ready
	$(BIN)/tallchain reproduce

# Most of the time of the tests goes into compiling many small programs: here the quickest way, in test-slow the usual.
test: lint types
	TALLCHAIN_TEST_COMPILE=quick $(BIN)/pytest -n auto --dist loadfile -m "not slow"

test-slow: .venv/ready
	$(BIN)/pytest -n auto --dist load -m slow

bench: .venv/ready
	$(BIN)/python -m benchmarks.lockstep
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.mixture
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m benchmarks.bounds
	$(BIN)/python -m benchmarks.combined
	$(BIN)/python -m benchmarks.curves
	$(BIN)/python -m benchmarks.orders
	$(BIN)/python -m benchmarks.calibration
	$(BIN)/python -m benchmarks.tails
	$(BIN)/python -m benchmarks.walk
	$(BIN)/python -m benchmarks.pages

# About an hour on 2 cores. make bench-peers COVERTYPE=covtype.npz has Covertype too; references: see benchmarks/peers.
bench-peers: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/python -m benchmarks.peers $(if $(COVERTYPE),--covertype $(COVERTYPE))
	$(BIN)/python -m benchmarks.peers --rows-against-n --draw
	$(BIN)/python -m benchmarks.pages

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
