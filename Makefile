# Names for commands a person could type; no logic beyond making the environment once.

PYTHON = $$(sh tests/pick-python)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Tests that touch nothing outside their process share the cores; those that need something of
# the host (namespaces, sockets, time that passes) run alone.
SPREAD := --numprocesses=auto --dist=loadscope
# A node starts in a third of the time where its modules lie compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint format interop interop-full soak bench experiments image clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt
	@sh tests/host-packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: $(READY)  ## everything a fresh machine needs, then `fabriclab demo`
	$(BIN)/fabriclab demo

test: $(READY)  ## everything a fresh machine needs, then the tests that need only Linux and Python
	$(BIN)/pytest -q $(SPREAD) -m 'not interop and not soak and not needs' $(PYTEST)
	$(BIN)/pytest -q -m 'needs and not interop and not soak' $(PYTEST)

check: lint  ## format, lint, types, unit tests: before each commit
	$(BIN)/pytest -q $(SPREAD) -m 'not interop and not soak and not slow and not needs' $(PYTEST)

lint: $(READY)  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## let the formatter decide
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

interop: $(READY)  ## install foreign judges where apt may, run the tests that need them
	@sh tests/interop/install-judges
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt mitmproxy-wireguard
	$(BIN)/pytest -q -m 'interop and not soak and not full' $(PYTEST)

interop-full: $(READY)  ## every run against Soft-RoCE, minutes; its table is committed
	@sh tests/interop/install-judges
	$(BIN)/pytest -q -m interop --interop-table tests/interop/roce/TABLE.md tests/interop/roce $(PYTEST)

soak: $(READY)  ## thousands of seeds; minutes to hours, never in CI
	$(BIN)/pytest -q -m soak $(PYTEST)

bench: $(READY)  ## every figure beside its ceiling of the same run
	$(BIN)/fabriclab bench

experiments: $(READY)  ## mirror published experiments in virtual time; their table is committed
	$(BIN)/python -m netem.experiments

image:  ## the container image, for docker/labs and exported labs
	docker build -f docker/Dockerfile -t fabriclab .

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
