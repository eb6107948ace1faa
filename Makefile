VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= python3
READY := $(VENV)/.ready

.PHONY: setup demo test check clean

# One stamp stands for a finished set-up; it is made anew when the requirements change.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -c constraints.txt torch
	$(PY) -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(READY)

setup: $(READY)

demo: setup
	$(VENV)/bin/draftwood demo

# One thread: the tests are many small operations, and two threads only wait for each other.
test: setup
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(PY) -m pytest

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
