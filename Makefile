# Gangway's commands. `make` alone lists them; the first use of any makes .venv from requirements.lock.

# Tests and tools start thousands of processes. Without bytecode each of them compiles all its modules again: a plan then
# takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TOOLS := .venv-tools/bin
TOOLS_READY := .venv-tools/.ready
TOOLS_LOCK := stacks/locks/tools.lock
TOOLS_EXTRAS := aws gcp azure openstack hosts kubernetes report
XLA := .venv-xla/bin
XLA_READY := .venv-xla/.ready
XLA_LOCKS := images/locks/xla.lock tests/trainer/xla/tools.lock
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command "make lock" --quiet
# With the progress of uv, or of pip, shown; without the bytecode of modules that nobody imports: Python writes what is
# used, and all of it would be two minutes and some hundred MB more. Nothing is resolved: a lock is whole, and pip would
# look for a newer release of what a package asks with an extra. $(1) is the environment's bin, $(2) the lock.
INSTALL_LOCK = if command -v uv > /dev/null; then uv pip install --python $(1)/python --no-deps --require-hashes --requirement $(2); \
    else $(1)/python -m pip install --disable-pip-version-check --no-compile --no-deps --require-hashes -r $(2); fi
# Without restarts: for the tests of a worker that has died pytest-xdist would wait for ever.
PYTEST := $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0
PACKAGES := components gangway images stacks tools trainer tests examples
# What of the trainer may differ with torch 2.9, without the tests that start a job of several processes.
QUICK_TRAINER_TESTS := $(addprefix tests/trainer/,networks data $(addsuffix .py,checkpoint/test_store \
    run/test_loop checkpoint/test_samples steps/test_state metrics/test_collect phases/test_augment phases/test_rng \
    phases/test_losses distributed/test_world distributed/test_ranks))

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(READY)  ## plan, apply to an in-process cloud, train, report: the whole story, offline
	@$(BIN)/gangway demo

tools: $(TOOLS_READY)  ## every cloud's planning without torch: .venv-tools/bin/gangway (a minute, 1 GB of disk)

test: lint unlinted  ## lint, types and the tests but for those marked slow

unlinted: $(READY)
	@echo "==> pytest (2 workers)"
	@$(PYTEST) -m "not slow" --durations=15 --durations-min=3

test-all: lint  ## lint, types and every test, with more examples: before each landing (ARGS=--hypothesis-seed=7)
	@$(MAKE) --no-print-directory pulumi || echo "==> without the Pulumi CLI: tests under the real engine are skipped"
	@echo "==> pytest, all of it (2 workers)"
	@$(PYTEST) --hypothesis-profile=deep $(ARGS)

pulumi:  ## the Pulumi CLI for tests, built with Go where it is not installed (20 minutes of processor time, once)
	@folder=$$($(PYTHON) -m tools.pulumi_cli) && echo "==> the Pulumi CLI is in $$folder"

coverage: $(READY)  ## every test, with the lines they run counted: at least 90 %
	@echo "==> pytest with coverage (2 workers)"
	@COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
	    $(PYTEST) --cov --cov-report=term

test-xla: xla  ## the trainer on PyTorch/XLA, in an environment of its own; quick tests with that torch
	@echo "==> pytest, quick tests of the trainer with this torch"
	@PYTHONPATH=. $(XLA)/pytest $(QUICK_TRAINER_TESTS)

xla: $(XLA_READY)
	@echo "==> pytest on PyTorch/XLA's CPU"
	@PYTHONPATH=. PJRT_DEVICE=CPU $(XLA)/pytest tests/trainer/xla

bench: $(READY)  ## the trainer's speed as ratios in one run: docs/benchmarks.md (half an hour, idle machine)
	@$(BIN)/python -m tools.bench --markdown docs/benchmarks.md --json docs/benchmarks.json

gpu-gate: $(READY)  ## is the trainer right on the GPUs of this machine: gpu-gate.json (half an hour; ARGS="--device cpu")
	@$(BIN)/python -m tools.gate --json gpu-gate.json $(ARGS)

drill: $(READY)  ## what a job loses by each fault: real processes, signals, cut cables (root; a quarter of an hour)
	@$(BIN)/python -m tools.drill --markdown docs/interruptions.md

bench-plan: $(READY)  ## how long a plan takes, as a multiple of importing Pulumi's SDK (a minute)
	@$(BIN)/python -m tools.plan_speed

reference: $(READY)  ## write docs/reference from the models and commands
	@$(BIN)/python -m tools.reference

attack: $(READY)  ## known attacks, tried as a job, a neighbour, a user of a queue, a team, a stack file's author: a table
	@$(PYTEST) -q -m attack $(ARGS)

lint: $(READY)  ## ruff, discouraged words, the layers of packages, mypy --strict
	@echo "==> ruff"
	@$(BIN)/ruff check $(PACKAGES) && $(BIN)/ruff format --check $(PACKAGES)
	@echo "==> words that tools/wording/words.yaml discourages"
	@$(BIN)/python -m tools.wording
	@echo "==> import-linter: layers"
	@$(BIN)/lint-imports --no-cache
	@echo "==> mypy --strict (some minutes the first time: it reads the SDKs)"
	@$(BIN)/mypy

format: $(READY)  ## rewrite the code in the project's layout
	@$(BIN)/ruff check --fix $(PACKAGES) && $(BIN)/ruff format $(PACKAGES)

lock:  ## resolve requirements.lock and the image's locks anew (needs uv)
	@$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements.lock
	@$(COMPILE) pyproject.toml $(TOOLS_EXTRAS:%=--extra %) --group tools --constraint requirements.lock \
	    --output-file $(TOOLS_LOCK)
	@$(COMPILE) --group trainer --constraint requirements.lock --output-file images/locks/trainer.lock
	@$(COMPILE) --group sbom --output-file images/locks/sbom.lock
	@$(COMPILE) --group xla --output-file images/locks/xla.lock
	@$(COMPILE) --group xla-test --constraint images/locks/xla.lock --output-file tests/trainer/xla/tools.lock

audit: $(READY)  ## known vulnerabilities of all locked packages, by osv.dev (needs the internet; not part of test-all)
	@$(BIN)/python -m gangway.images.audit_locks

lock-images: $(READY)  ## ask registries what the tags of base images and Prometheus stand for: images/images.lock
	@$(BIN)/python -m gangway.images.lock_images

clean:  ## remove .venv, caches and runs
	@rm -rf .venv .venv-tools .venv-xla stacks/.venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* runs

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Gangway needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@if [ "$$(readlink .venv)" = .venv-tools ]; then rm .venv; fi
	@echo "==> setting up .venv (once; torch is large: some minutes, 7 GB of disk): 1 of 3, an empty environment"
	@$(PYTHON) -m venv .venv
	@echo "==> 2 of 3, $$(grep -c '^[a-z0-9].*==' requirements.lock) packages from requirements.lock"
	@$(call INSTALL_LOCK,$(BIN),requirements.lock)
	@echo "==> 3 of 3, gangway itself"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@cp tools/pip.conf .venv/pip.conf
	@ln -sfn ../.venv stacks/.venv  # where Pulumi looks for the Python of dynamic resources
	@touch $@
	@echo "==> $$(du -sh .venv | cut -f1) in .venv"

$(TOOLS_READY): $(TOOLS_LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Gangway needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 tools")'
	@echo "==> setting up .venv-tools (once): 1 of 3, an empty environment"
	@$(PYTHON) -m venv .venv-tools
	@echo "==> 2 of 3, $$(grep -c '^[a-z0-9].*==' $(TOOLS_LOCK)) packages from $(TOOLS_LOCK)"
	@$(call INSTALL_LOCK,$(TOOLS),$(TOOLS_LOCK))
	@echo "==> 3 of 3, gangway itself"
	@$(TOOLS)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@cp tools/pip.conf .venv-tools/pip.conf
	@[ -e .venv ] || ln -sfn .venv-tools .venv  # where Pulumi.yaml has the program's environment, if there is no other
	@ln -sfn ../.venv stacks/.venv  # where Pulumi looks for the Python of dynamic resources
	@touch $@
	@echo "==> $$(du -sh .venv-tools | cut -f1): .venv-tools/bin/gangway plan gcp-a3-spot"

$(XLA_READY): $(XLA_LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "torch_xla 2.9 needs Python 3.11 to 3.13; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 test-xla")'
	@echo "==> setting up .venv-xla (once; torch 2.9 beside the other: some minutes, 7 GB of disk): 1 of 2, an empty environment"
	@$(PYTHON) -m venv .venv-xla
	@echo "==> 2 of 2, $$(cat $(XLA_LOCKS) | grep -c '^[a-z0-9].*==') packages from $(XLA_LOCKS)"
	@$(call INSTALL_LOCK,$(XLA),$(firstword $(XLA_LOCKS)) $(patsubst %,--requirement %,$(wordlist 2,9,$(XLA_LOCKS))))
	@touch $@

.PHONY: help demo tools test unlinted test-all pulumi coverage test-xla xla bench gpu-gate bench-plan reference drill attack audit lint format lock lock-images clean
.DEFAULT_GOAL := help
