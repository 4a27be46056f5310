# The only commands that a person needs. `make` lists them.

PYTHON ?= python3
EXTRAS ?= cpu,test,dev
# Where torch's CPU build comes from if pip, as configured, finds none.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
NAME ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test check bench

help: ## List these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: ## Install everything into .venv (EXTRAS=gpu,test,dev on a GPU machine)
	@$(PYTHON) config/bootstrap.py --extras "$(EXTRAS)" --torch-index "$(TORCH_INDEX)"

run: setup ## Start Longhaul here and ask it something (ONCE=1: stop after the answer; PORT=8001; MODEL=simulated)
	@$(BIN)/longhaul up $(if $(ONCE),--once) $(if $(PORT),--port $(PORT)) $(if $(MODEL),--model $(MODEL))

test: setup ## Run all tests, on real servers and a real model (ARGS="-k word")
	@$(BIN)/python -m workers.models smollm2
	@$(BIN)/python -m pytest $(ARGS)

check: setup ## Lint, format, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup ## Measure (NAME=ttft; without a name, list the benches)
	@$(BIN)/python -m bench $(NAME) $(ARGS)
