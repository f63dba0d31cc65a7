# `make demo` and `make test` do everything from a clean clone; nothing is repeated when nothing changed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint setup bench bench-quick clean
.DEFAULT_GOAL := demo

demo: setup            ## run the main job: ten clients, three of them hostile, under three rules
	@$(BIN)/steelyard run

test: lint             ## lint, type-check and test
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: setup           ## engines beside a hand-written loop and other frameworks (fetches data and peers; two hours)
	@$(BIN)/python benchmarks/simulation.py

bench-quick: setup     ## engines beside a hand-written loop and the ratios recorded last (under four minutes)
	@$(BIN)/python benchmarks/quick.py

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing steelyard and its pinned dependencies into $(VENV) (a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

clean:                 ## undo: the virtual environment, caches and build leftovers (recorded runs stay)
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +
