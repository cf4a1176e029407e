# Every target builds the virtual environment it needs; Python 3.11 or newer is all that must be there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OLDEST := .venv-oldest
OLDEST_PYTHON ?= python3.11
NEWEST := .venv-newest
# The newest of these that there is and runs; the names may be there without an interpreter behind them.
NEWEST_PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 $(PYTHON); do \
  $$python -c '' 2>/dev/null && echo $$python && break; done)

# Everything that numba compiles is used by these.
HINGE := $(addprefix tests/test_, smo.py single_machine.py svm.py posterior_svm.py)
# The estimators with scikit-learn's checks, what they are made of, and files of models and tables.
ESTIMATORS := $(addprefix tests/test_, lssvm_classifier.py svm.py posterior_svm.py kernel_logistic.py auto.py \
  densities.py kernels.py metric.py ranks.py codebooks.py decoders.py leave_out.py lapack.py threads.py \
  reproduction.py persistence.py tables.py)

# Of these, what differs most between versions: scikit-learn's checks of the default estimators, LAPACK, files.
SMOKE := $(ESTIMATORS) tests/test_lazy.py -k "lapack or tables or lazy or (persistence and format) or (scikit_learn and not \
  (coding or shared_parameters or members or density or machine or gamma))"

DOCS := docs/_build/html

.PHONY: help demo docs docs-check test test-gpu test-long svc-tests nojit oldest oldest-smoke newest-smoke release lint format reproduce bench fuzz clean

help:            ## list the targets
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(VENV)/.run      ## AutoKernelClassifier beside SVC and a forest, codings and decoders, on handwritten digits
	$(BIN)/polymargin compare digits --sample 450 --repeats 3 --jobs 2 --report polymargin-demo.html

docs: $(VENV)/.docs      ## build the documentation into docs/_build/html, offline and without a warning
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html -W --keep-going docs $(DOCS)

docs-check: docs         ## look at every page of it in a real browser: links, console, phone, dark, search
	$(BIN)/python -m pytest -m docs tests/test_docs_site.py

test: $(VENV)/.dev lint ## lint, type check and test
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-long: $(VENV)/.dev ## what make test leaves out: further sets, seeds and sizes of its slow tests (a quarter of an hour)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m long

test-gpu: $(VENV)/.dev  ## the machines on a GPU, where there is one (pip install "polymargin[gpu]" first)
	@if reason=$$($(BIN)/python -c 'from polymargin.device import resolve_device; resolve_device("cuda")' 2>&1); then \
	  POLYMARGIN_DEVICE=cuda $(BIN)/python -m pytest tests/test_device.py tests/test_stacks.py \
	    tests/test_device_softmax.py; \
	else \
	  echo "There is no GPU here, so nothing was tested: $$(echo "$$reason" | tail -n 1)"; \
	fi

svc-tests: $(VENV)/.dev ## scikit-learn's own tests of SVC, with SVMClassifier in its place
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tools/svc_tests.py

nojit: $(VENV)/.dev     ## the tests of the hinge machines with numba's compiler switched off
	NUMBA_DISABLE_JIT=1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(HINGE)

oldest: $(OLDEST)/.dev  ## the estimators on the oldest supported versions; make OLDEST_PYTHON=... oldest
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 $(ESTIMATORS)

oldest-smoke: $(OLDEST)/.dev ## a minute of that, for continuous integration
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 $(SMOKE)

newest-smoke: $(NEWEST)/.dev ## the same on the newest Python and libraries; make NEWEST_PYTHON=... newest-smoke
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n 2 -W error::FutureWarning:polymargin $(SMOKE)

release: $(VENV)/.dev   ## build wheel and sdist into dist/, check them, use them in a fresh environment
	$(BIN)/python tools/check_release.py dist

lint: $(VENV)/.dev      ## ruff, mypy and numpydoc
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_docstrings.py

format: $(VENV)/.dev    ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reproduce: $(VENV)/.dev ## the papers' tables, ours beside theirs (resumable)
	$(BIN)/polymargin reproduce vangestel2002 --table 2

bench: $(VENV)/.dev     ## the benchmarks
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev      ## 20 000 damaged and forged model files
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz_model_files.py

clean:           ## remove what was built
	rm -rf $(VENV) $(OLDEST) $(NEWEST) dist docs/_build docs/api docs/gallery .pytest_cache .mypy_cache .ruff_cache

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "polymargin needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli,test,lint,plot]'
	@touch $@ $(VENV)/.run

$(VENV)/.docs: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[cli,test,docs]'
	@touch $@ $(VENV)/.run

$(OLDEST)/.dev: pyproject.toml tools/oldest.py
	$(OLDEST_PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python tools/oldest.py tables persist > $(OLDEST)/requirements.txt
	$(OLDEST)/bin/python -m pip install --quiet --requirement $(OLDEST)/requirements.txt \
	  pytest pytest-xdist hypothesis qpsolvers piqp
	$(OLDEST)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

$(NEWEST)/.dev: pyproject.toml
	$(NEWEST_PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --editable '.[persist,tables]' \
	  pytest pytest-xdist hypothesis qpsolvers piqp
	@touch $@
