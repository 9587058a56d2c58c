PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Exactly this version, and before what needs it: other builds bring gigabytes of CUDA.
TORCH := torch==2.13.0
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: help demo reproduce readme test test-all test-slow test-torch docs docs-build bench scale trust lint format clean

help:  ## Say what there is.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[test,lint,docs]'
	touch $@

$(VENV)/.installed-torch: $(VENV)/.installed
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable '.[torch]'
	touch $@

demo: $(VENV)/.installed  ## Patients ask to be forgotten, from the request to a checked report: demo/demo.png, demo/report.html.
	$(BIN)/python examples/deletion_request.py

test: $(VENV)/.installed lint  ## Lint, types, and the tests that take little time; they build the site, too.
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long and not slow"

test-all: $(VENV)/.installed  ## The tests that take longer: every experiment, every adapter in depth.
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "long and not slow"

test-slow: $(VENV)/.installed  ## The tests marked slow: the paper's own long settings, many seeds.
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

test-torch: $(VENV)/.installed-torch  ## The adapters for GPyTorch and Pyro and their tutorials, which need PyTorch.
	$(BIN)/python -m pytest tests/adapters/test_gpytorch.py tests/adapters/test_gpytorch_variants.py tests/adapters/test_pyro.py tests/adapters/test_pyro_memory.py
	$(BIN)/python -m pytest tests/test_docs.py -k "gpytorch or pyro.md and not numpyro"

docs: $(VENV)/.installed  ## Build the documentation, and serve it at http://127.0.0.1:8000.
	$(MKDOCS) serve --strict

docs-build: $(VENV)/.installed  ## Build the documentation in site/, without network; a warning is an error.
	$(MKDOCS) build --strict --quiet

reproduce: $(VENV)/.installed  ## Every experiment of the paper, quick: results/report.html (minutes).
	$(BIN)/unbayes reproduce all --quick

readme: $(VENV)/.installed  ## Put the table and pictures of results/ into the README.
	$(BIN)/python -m unbayes_paper.readme results README.md

bench: $(VENV)/.installed  ## What unlearning costs, against its rivals: bench.md, start.md, numpyro_start.md, ledger.md and service.md in benchmarks/.
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/numpyro_start.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/service.py

scale: $(VENV)/.installed  ## A hundred million rows in files, on workers and as a stream: benchmarks/scale.md (10 GB of disk).
	$(BIN)/python benchmarks/scale.py --again

trust: $(VENV)/.installed  ## When results are trusted and errors predicted, over 302 scenarios: benchmarks/trust.md, .json and .png.
	$(BIN)/python benchmarks/trust.py

lint: $(VENV)/.installed  ## Style and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.installed  ## Put the code in order.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the environment and all that was built.
	rm -rf $(VENV) demo dist build site .pytest_cache .ruff_cache .hypothesis
