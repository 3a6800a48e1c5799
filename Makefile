# One environment for all of it: .venv, made on first use. `make help` lists what there is.
#
#   make test ARGS="-k journal"       arguments for pytest
#   make demo PYTHON=python3.12       another interpreter (remove .venv first)

PYTHON ?= python3
UV ?= $(shell command -v uv)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-async demo-ray demo-gpu stack stack-down stack-status test test-backends check format bench clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.demo ## Train a small policy with GRPO on the CPU, traced: tables, a report, a step to open in Jaeger
	@RL_OTEL_PRINT=$${RL_OTEL_PRINT:-1} $(BIN)/python examples/grpo.py $(ARGS)

demo-async: $(VENV)/.demo ## Asynchronous GRPO on the CPU, in four processes: who waited for whom, and how stale samples were
	@RL_OTEL_PRINT=$${RL_OTEL_PRINT:-0} $(BIN)/python examples/async_grpo.py $(ARGS)

demo-ray: $(VENV)/.test ## The same on Ray: the driver trains, actors generate and have the environments
	@RL_OTEL_PRINT=$${RL_OTEL_PRINT:-0} $(BIN)/python examples/async_grpo_ray.py $(ARGS)

demo-gpu: $(VENV)/.test ## The first as on a machine with a GPU, where there is none: memory and GPU time of each phase
	@RL_OTEL_PRINT=$${RL_OTEL_PRINT:-1} $(BIN)/python -m tests.demo_gpu $(or $(ARGS),--steps 8)

# These need Python alone, and no environment.
stack: ## Collector, Jaeger and Prometheus on this machine, without Docker: what is not on PATH is built with Go, once
	@$(PYTHON) -m stack up

stack-down: ## End what `make stack` started; its data stay
	@$(PYTHON) -m stack down

stack-status: ## Say what of it runs
	@$(PYTHON) -m stack status || true

test: $(VENV)/.test ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

test-backends: $(VENV)/.test .cache/backends/phoenix/.made .cache/backends/mlflow/.made ## The same traces in Phoenix and MLflow, installed for it: 1.1 GB
	@$(BIN)/python -m pytest tests/backends.py $(ARGS)

check: $(VENV)/.dev ## Lint, types and floors
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(VENV)/.test ## Measure what tracing costs, beside the OpenTelemetry SDK
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/.dev ## Put the code into shape
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: stack-down ## Remove the environment, what tools left behind, and the data of the stack
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build

# An extra is installed once, and again when pyproject.toml changes.
$(VENV)/.%: pyproject.toml $(VENV)/.made
	@echo "Installing rl_otel[$*] into $(VENV)$(if $(filter dev,$*),, (torch is large: the first time takes minutes)) ..."
	@$(call install,-e '.[$*]')
	@touch $@

# The base Python's torch fits its GPU and weighs gigabytes: where there is one, the environment sees it.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	    echo "rl_otel needs Python 3.10 or newer; '$(PYTHON)' is missing or older. Name another: make PYTHON=python3.12"; exit 1; }
	@site=$$($(PYTHON) -c 'import sys, torch; print("--system-site-packages" * (sys.prefix == sys.base_prefix))' 2>/dev/null); \
	if [ -n "$(UV)" ]; then $(UV) venv --quiet --allow-existing --seed --python "$$(command -v $(PYTHON))" $$site $(VENV); \
	else $(PYTHON) -m venv $$site $(VENV) || { \
	    echo "Python could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }; fi
	@touch $@

# Servers of others, each in an environment of its own: what they pin is not for ours.
package_phoenix := arize-phoenix
package_mlflow := mlflow
.cache/backends/%/.made:
	@echo "Installing $(package_$*) into $(@D) ..."
	@if [ -n "$(UV)" ]; \
	    then $(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(@D) \
	        && $(UV) pip install --quiet --python $(@D)/bin/python $(package_$*); \
	    else $(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet $(package_$*); fi
	@touch $@

# uv does not look at the base Python's packages, pip does.
# An editable install compiles nothing, and needs nothing that does.
define install
export HATCH_BUILD_NO_HOOKS=true; \
if [ -n "$(UV)" ] && grep -q 'include-system-site-packages = false' $(VENV)/pyvenv.cfg; \
    then $(UV) pip install --python $(BIN)/python $(1); \
    else $(BIN)/python -m pip install --disable-pip-version-check $(1); fi
endef
