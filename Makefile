# Everything runs in .venv; `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-slow lint docs hashes bench clean

.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[report,runs,sklearn]'
	touch $@

.venv/dev: .venv/base
	$(PIP) --editable '.[test,lint,docs]'
	touch $@

demo: .venv/base
	$(BIN)/dynagram report

# Without the long agreement runs, which test-slow has; both by .ci/run. Short tests are mostly
# compilation, which is faster with fewer optimisations; the long ones run as users do.
test: export JAX_DISABLE_MOST_OPTIMIZATIONS = true
# Two workers on two cores: threads that spin while others wait for a core take most of the time.
test test-slow: export OMP_NUM_THREADS = 1
test: .venv/dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow" $(ARGS)

test-slow: .venv/dev
	$(BIN)/pytest -n 2 --dist worksteal -m slow $(ARGS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: .venv/dev
	$(BIN)/mkdocs build --strict

# After a change of constraints.txt or of the dependencies.
hashes: .venv/dev
	$(PIP) uv
	{ sed '/^#/!d' hashes.txt; echo 'hatchling>=1.27' | $(BIN)/uv pip compile pyproject.toml - \
	  --extra report --extra runs --extra sklearn --extra dask --extra studio \
	  --constraint constraints.txt --universal --python-version 3.11 --generate-hashes \
	  --no-annotate --no-header --quiet; } > hashes.new
	mv hashes.new hashes.txt

bench: .venv/dev
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/architectures.py
	$(BIN)/python benchmarks/ntk.py
	$(BIN)/python benchmarks/ensembles.py
	$(BIN)/python benchmarks/runs.py
	$(BIN)/python benchmarks/fields.py

clean:
	rm -rf .venv build dist site
