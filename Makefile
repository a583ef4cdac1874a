PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE_STAMP := $(VENV)/.site-installed
FLOOR := $(VENV)-floor
OTHER := $(VENV)-torch
OTHER_TORCH = $(or $(TORCH),$(error Say which torch: make test-torch TORCH=2.9.1))
TORCH_TESTS ?= $(addprefix tests/,distributed equivalence golden inference initializers kernels \
	likelihoods linalg network posteriors storage training test_batching.py test_curvature.py \
	test_objective.py test_predictive.py test_priors.py test_torch_world.py)
WORKERS ?= 2
PYTEST_ARGS := -q -n $(WORKERS) --dist loadfile
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: demo test test-fast test-data test-floor test-torch coverage fuzz soak check metrics results \
	pages docs docs-tools test-site wheel clean

demo: $(STAMP)
	$(BIN)/headstart demo --out out/demo

test: $(STAMP)
	$(PYTEST)

test-fast: $(STAMP)
	$(PYTEST) -m "not slow and not data"

test-data: $(STAMP)
	$(PYTEST) -m data

test-floor:
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/pip install --quiet -c constraints-floor.txt -e '.[dev]'
	$(FLOOR)/bin/python -m pytest $(PYTEST_ARGS)

# Lines of the library that the tests run: COVERED=tests/linalg make coverage measures some of them.
coverage: $(STAMP)
	$(PYTEST) --cov=headstart --cov-report=term-missing:skip-covered $(COVERED)

# Another torch (and Python): make test-torch TORCH=2.9.1 PYTHON=python3.12
# Some versions of torch ask for an older setuptools than constraints.txt has.
test-torch:
	$(PYTHON) -m venv --clear $(OTHER)
	sed -e 's/^torch==.*/torch==$(OTHER_TORCH)/' -e '/^setuptools==/d' constraints.txt > $(OTHER)/pins.txt
	$(OTHER)/bin/pip install --quiet -c $(OTHER)/pins.txt -e '.[dev]'
	$(OTHER)/bin/python -m pytest $(PYTEST_ARGS) $(TORCH_TESTS)

fuzz: $(STAMP)
	HEADSTART_FUZZ=500 $(BIN)/python -m pytest -q tests/hostile --hypothesis-show-statistics

soak: $(STAMP)
	HEADSTART_KILLS=200 $(BIN)/python -m pytest -q tests/training/test_fit_checkpoint.py -k killed

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

metrics: $(STAMP)
	$(BIN)/python tools/metrics.py

results: $(STAMP)
	$(BIN)/headstart reproduce all --budget quick --out out/results --jobs 2
	$(BIN)/headstart report out/results --markdown docs/results
	$(BIN)/python benchmarks/families.py --steps 2000 --seeds 2 --out docs/results/families.md
	$(BIN)/python benchmarks/noisy_kfac.py --threads 2 --out docs/results/noisy-kfac-cost.md
	$(BIN)/python benchmarks/speed.py --threads 2 --out docs/results/speed.md
	$(BIN)/python benchmarks/table_rivals.py run
	$(BIN)/python benchmarks/table_rivals.py page
	$(BIN)/python benchmarks/table_recipe.py --rows out/table-rivals.jsonl
	$(BIN)/python benchmarks/scaling.py --out docs/results/scaling.md
	$(BIN)/python tools/readme_results.py

# All pages of suites, and the sentences of README.md, from the rows in docs/results/rows.
pages: $(STAMP)
	$(BIN)/headstart report docs/results
	$(BIN)/python tools/readme_results.py

# Examples of the gallery are run again where they or the library have changed since.
docs: $(SITE_STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -d out/site-cache docs out/site
	$(BIN)/python tools/links.py out/site

# What builds the site, without building it: the only part of `docs` that needs the registry.
docs-tools: $(SITE_STAMP)

# The built site as a reader meets it: in Chromium, where there is one.
test-site: docs
	$(BIN)/python -m pytest -q -k "built or reader" tests/test_site.py

wheel: $(STAMP)
	$(BIN)/python -m build --wheel --outdir dist .

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $(STAMP)

$(SITE_STAMP): $(STAMP) docs/requirements.txt
	$(BIN)/pip install --quiet -c constraints.txt -r docs/requirements.txt
	touch $(SITE_STAMP)

clean:
	rm -rf $(VENV) $(FLOOR) $(OTHER) build dist out .pytest_cache .mypy_cache .ruff_cache \
		docs/gallery docs/api docs/sg_execution_times.rst
