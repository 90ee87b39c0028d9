# make train   the default character model, from a fresh machine to a sample of its text; once stopped, it goes on;
#              TRAIN_ARGS="--steps 500" goes to examples/char_lm.py
# make test    the tests; PYTEST_ARGS='-k softmax -x' goes to pytest
# make lint    ruff and mypy
# make clean   removes what the others made, .venv included, but not runs/
#
# All work in .venv, made on first use with PYTHON (3.10 or newer) and brought up to date when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: train test lint clean
.NOTPARALLEL:

train: $(VENV)/installed-train,viz
	$(PY) examples/char_lm.py --out runs/char_lm $(if $(wildcard runs/char_lm/last.safetensors),--resume) $(TRAIN_ARGS)

test: $(VENV)/installed-test
	$(PY) -m pytest -n auto $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(PY) -m ruff check .
	$(PY) -m mypy

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find minigrad tests examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/installed-%: pyproject.toml $(VENV)/ready
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# Writing .venv/ready is the last step of making .venv, and what is written is where it was made. So a .venv half made,
# one whose Python has gone, and one that moved together with the checkout are all put right here.
ifneq ($(shell $(PY) -c 'import pip; print(open("$(VENV)/ready").read())' 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/ready
endif

$(VENV)/ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo 'minigrad needs Python 3.10 or newer; if you have one by another name, type: make PYTHON=python3.12' >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "apt-get install $$package" && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$package >/dev/null; \
	  else \
	    echo "Python's venv module is missing; type: sudo apt-get install $$package" >&2; exit 1; fi; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo '$(CURDIR)' >$@
