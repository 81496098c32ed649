# Two commands are all a reader needs: `make book` and `make test`. `make help` lists the others.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export TQDM_DISABLE ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help book pages pdf test quick lint export stamp student serve clean clean-all

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "make %-10s %s\n", $$1, $$2}'

# The environment is made again when the pins or the package's description change.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Python 3.11 or later is needed, $(PYTHON) is %d.%d: name another one with  make PYTHON=python3.12 ..." % v[:2])'
	@test -x $(BIN)/python || { echo "Creating $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing the pinned packages (minutes, the first time) ..."
	@$(BIN)/python -m pip install --progress-bar off -r requirements.txt
	@$(BIN)/python -m pip check
	@$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

book: $(READY) ## run every notebook and render the site to _build/html/index.html
	@$(BIN)/python tools/build_book.py

pages: $(READY) ## check every page of the rendered site in a real browser, if one is there
	@$(BIN)/python tools/check_pages.py _build/html

pdf: $(READY) ## after `make book`: print each chapter, and the whole book, to _build/pdf
	@$(BIN)/python tools/make_pdf.py

test: lint ## check the style, then run every test and every notebook
	@$(BIN)/python -m pytest -n 2 --dist loadfile --durations 15

quick: lint ## check the style, then run the fast tests: two minutes on two cores
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" tests

lint: $(READY) ## check the style of notebooks and Python files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

export: $(READY) ## write the package's modules from the notebooks, and clean the notebooks
	@PATH="$(CURDIR)/$(BIN):$$PATH" nbdev-export
	@PATH="$(CURDIR)/$(BIN):$$PATH" nbdev-clean

stamp: $(READY) ## write the address, the chapters' headers and their counted minutes
	@$(BIN)/python tools/stamp.py

student: $(READY) ## make a copy of the notebooks without solutions, in _build/student
	@$(BIN)/python tools/student.py

serve: ## show the rendered site at http://localhost:8000
	@$(PYTHON) -m http.server --directory _build/html 8000

clean: ## remove the rendered site; the notebooks' kept outputs stay
	rm -rf _build/html _build/student dist build *.egg-info

clean-all: ## remove everything that was made, the environment included
	rm -rf _build dist build *.egg-info $(VENV)
