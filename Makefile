# make train   trains the default character model and prints a sample of what it writes, also on a fresh machine. A run
#              that was stopped is resumed. TRAIN_ARGS="--steps 500" is passed to `minigrad train`
# make test    runs the tests. PYTEST_ARGS='-k softmax -x' is passed to pytest. FOLDER="nn optim" runs those folders of
#              tests/ only, FOLDER=changed those of the packages that differ from the last commit: a first proof, in seconds
# make gpu-rig-test  runs the tests of the GPU path on a rig that needs no GPU (tests/gpu_rig/), which make gpu-rig builds in
#              .gpu-rig, or the folder GPU_RIG. It takes minutes, as kernels are translated when they are first used
# make lint    ruff, for mistakes and for the format, and mypy
# make lines   counts the code lines of each folder
# make clean   removes what the others made, .venv included, but not runs/
# make help    prints this
#
# They work in .venv, which is made on first use with PYTHON (3.11 or newer) and updated when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

GPU_RIG ?= .gpu-rig
FOLDER :=  # a variable of this name in the environment means something else

.PHONY: train test gpu-rig gpu-rig-test lint lines clean help
.NOTPARALLEL:

train: $(VENV)/installed-train
	$(VENV)/bin/minigrad train --out runs/char_lm $(if $(wildcard runs/char_lm/last.safetensors),--resume) $(TRAIN_ARGS)

test: $(VENV)/installed-test
	$(PY) -m pytest -n auto $(if $(filter changed,$(FOLDER)),$(shell $(PY) -m tests.changed),$(FOLDER:%=tests/%)) $(PYTEST_ARGS)

gpu-rig:
	@PYTHON=$(PYTHON) bash tests/gpu_rig/build.sh $(GPU_RIG)

gpu-rig-test: gpu-rig
	PYTHONPATH=. $(GPU_RIG)/run -m pytest -n auto -m "(gpu or rig) and not oracle" $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

lines:
	@$(PYTHON) tests/project/lines.py

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

clean:
	rm -rf $(VENV) $(GPU_RIG) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find minigrad tests examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/installed-%: pyproject.toml $(VENV)/ready
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# The last step of making .venv is to write .venv/ready, which says where it was made. So a .venv that was only half
# made, one whose Python has gone, and one that has moved together with the checkout are all noticed, and made again.
ifneq ($(shell $(PY) -c 'import pip; print(open("$(VENV)/ready").read())' 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/ready
endif

$(VENV)/ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'minigrad needs Python 3.11 or newer; if you have one by another name, type: make PYTHON=python3.12' >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "apt-get install $$package" && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$package >/dev/null; \
	  else \
	    echo "Python's venv module is missing; type: sudo apt-get install $$package" >&2; exit 1; fi; }
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo '$(PYTHON) -m venv $(VENV)'; $(PYTHON) -m venv --clear $(VENV); }
	@echo '$(CURDIR)' >$@
