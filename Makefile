# Everything that a developer runs. `make` alone prints the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UI := api/dashboard
# Folders too: one changes when a file in it is removed.
UI_SOURCES = $(shell find $(UI)/src $(UI)/public 2>/dev/null) $(wildcard $(UI)/*.html $(UI)/*.json $(UI)/*.ts)
NPM = PATH="$$($(PYTHON) deploy/setup/node.py):$$PATH" npm --prefix $(UI) --no-fund --no-audit --no-update-notifier

# A gang is a dozen short processes: without bytecode each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv dashboard client sync-client demo docs up down ready checks checked test budgets test-all lint types layers dashboard-check dashboard-lint dashboard-test system-deps tools chart-docs smollm parity chaos mutants timing bench bench-recovery bench-engines bench-trace bench-search bench-page bench-memory loss-curves screenshots gpu-check clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/.installed-dev ## .venv with Shardyard, its pinned dependencies and the development tools

dashboard: $(UI)/dist/.built ## The dashboard, built when its sources are newer than the build

demo: .venv/.installed-run dashboard ## Train a small Llama on real text with four ranks; print a summary, a sample, and what is next
	$(BIN)/shardyard run examples/quickstart.yaml --sample "def "

up: .venv/.installed-run dashboard ## Start the embedded control plane (API, dispatcher, Ray) and stay
	$(BIN)/shardyard up

down: .venv/.installed-run ## Stop the embedded control plane and its Ray
	$(BIN)/shardyard down

READY := venv dashboard tools system-deps
CHECKS := lint types layers dashboard-check

ready: ## Everything that the tests need, set up side by side
	@$(MAKE) --no-print-directory -j4 --output-sync=target $(READY)

checks: ## lint, types, layers and the dashboard's own checks
	@$(MAKE) --no-print-directory -j2 --output-sync=target $(CHECKS)

# Packages, types and lint on one core; on another the dashboard is built and tested meanwhile.
checked: ## `ready` and `checks`, side by side
	@$(MAKE) --no-print-directory -j3 --output-sync=target $(READY) $(CHECKS)

# Two processes of tests beside each other (JOBS): files that share a Ray head or a control plane stay in one (tests/conftest.py).
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest
# What injects faults or fills the machine may take longer: eight ranks on two cores, too.
PATIENT = SHARDYARD_TEST_PATIENCE_S=240 $(PYTEST) -o timeout=900 -o faulthandler_timeout=600
BESIDE = -n $(JOBS) --dist loadscope --no-loadscope-reorder --durations=25 --junitxml=build/tests.xml

# What becomes of files over their time budgets: an assertion on the clock fails no run but the one that is made for it.
BUDGETS := name

test: checked ## All checks, and every test of the core, in at most fifteen minutes on two cores; names files over their time budgets
	$(PYTEST) -m "not gpu and not full and not timing" $(BESIDE) --maxfail=5 --session-timeout=2700 --budgets=$(BUDGETS) $(PYTEST_ARGS)

budgets: BUDGETS := hold
budgets: test ## The same run as `make test`; it fails by a file over its time budget (tests/budgets.json)

test-all: checked ## All checks and all tests that need no GPU: the whole grids, chaos, nodes, a newcomer; then the timed ones, alone
	SHARDYARD_HANGS=2 $(PATIENT) -m "not gpu and not timing" $(BESIDE) --hypothesis-profile=drawn $(PYTEST_ARGS)
	$(MAKE) --no-print-directory timing

lint: venv ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv ## mypy --strict on our own code
	$(BIN)/mypy

layers: venv ## The import contracts: api → service → workers → strategies
	$(BIN)/lint-imports

client: venv $(UI)/node_modules/.installed ## The dashboard's types of our API, from the API itself (src/api/api.d.ts, committed)
	@mkdir -p build
	$(BIN)/python -m shardyard.api.cli.commands.openapi > build/openapi.json
	$(NPM) run --silent client

# Generates the types first, so that an API that no longer fits the pages fails here.
dashboard-check: dashboard-lint dashboard-test ## Types, lint and unit tests of the dashboard

dashboard-lint: client ## Types and lint of the dashboard
	$(NPM) run --silent check

# On two cores vitest has one worker: `make checks` runs it beside the dashboard's lint.
dashboard-test: $(UI)/node_modules/.installed ## Unit tests of the dashboard
	$(NPM) run --silent test

system-deps: ## Debian's Chromium for the browser tests, where it is missing (needs root or sudo)
	@$(PYTHON) deploy/setup/chromium.py

tools: .tools/helm ## Helm, for the chart's tests

chart-docs: venv ## The values table in the chart's README, from values.yaml
	$(BIN)/python deploy/chart/values_table.py

sync-client: venv ## The blocking client (api/client/_sync, committed), from the asynchronous one
	$(BIN)/python deploy/codegen/sync_client.py

# Without --quiet, which hides warnings from `strict` too; the output is printed if the build fails.
docs: venv ## The documentation's site, into build/docs; dead links are errors
	@output=$$($(BIN)/python -m mkdocs build 2>&1) || { echo "$$output"; exit 1; }

smollm: venv ## The weights of SmolLM2-135M for examples/smollm2.yaml, and its test
	$(BIN)/python deploy/setup/smollm2.py
	$(BIN)/python -m pytest tests/integration/test_examples.py -k smollm2 $(PYTEST_ARGS)

screenshots: venv dashboard system-deps ## The pictures in README and docs, of real jobs in a real browser, into docs/images
	$(BIN)/python tests/browser/screenshots.py

SEED ?= 0
N ?= 120
PAIRS ?= 30
parity: venv ## Every layout against a single process, N more and PAIRS of a checkpoint's writer and reader drawn by SEED
	PARITY_SEED=$(SEED) PARITY_COUNT=$(N) PARITY_PAIRS=$(PAIRS) $(PATIENT) tests/parity -m "not gpu and not timing" $(PYTEST_ARGS)

timing: venv ## The tests whose assertion is a time or a measured share of one; run it on a machine that does nothing else
	$(PATIENT) -m "timing and not gpu" $(PYTEST_ARGS)

chaos: venv ## N faults (20), drawn by SEED, injected into running jobs of six layouts (or FAULTS at LAYOUT); ten hangs, each to be explained; nodes killed and cut off
	CHAOS_SEED=$(SEED) CHAOS_COUNT=$(if $(findstring command,$(origin N)),$(N),20) CHAOS_FAULTS="$(FAULTS)" CHAOS_LAYOUT=$(LAYOUT) $(PATIENT) tests/acceptance/test_chaos.py $(PYTEST_ARGS)
	SHARDYARD_HANGS=10 $(PATIENT) tests/integration/workers/supervisor/test_hang_watchdog.py $(PYTEST_ARGS)
	$(PATIENT) tests/integration/workers/supervisor/test_node_loss.py tests/integration/workers/supervisor/test_network_partition.py tests/acceptance/test_elastic.py $(PYTEST_ARGS)

mutants: ready ## Wrong lines, one at a time in a copy of the tree (tests/mutants/mutants.toml): `make test` must notice each
	cd tests && ../$(BIN)/python -m mutants.run --jobs $(JOBS) $(NAMES)

bench-recovery: venv ## From a rank's SIGKILL to the next step, beside Ray Train; what snapshots and checkpoints cost
	$(BIN)/python benchmarks/recovery.py $(BENCH_ARGS)

bench: venv ## Time from submit to the first step, beside torchrun and Ray Train
	$(BIN)/python benchmarks/launch.py $(BENCH_ARGS)

bench-engines: venv ## Tokens/s of our strategies beside DDP, FSDP2, torch's tensor parallelism and DeepSpeed
	$(BIN)/python benchmarks/engines.py $(BENCH_ARGS)

bench-trace: venv ## What a trace costs while it is recorded, and what tracing costs while no trace is requested
	$(BIN)/python benchmarks/trace_cost.py $(BENCH_ARGS)

bench-search: venv ## How long a list of jobs takes beside ten clients that search a log
	$(BIN)/python benchmarks/log_search.py $(BENCH_ARGS)

bench-page: venv dashboard system-deps ## Whether the scripts of a job page that streams for half an hour keep growing
	$(BIN)/python benchmarks/page_memory.py $(BENCH_ARGS)

bench-memory: venv ## The memory of published training runs beside what a dry run says of them
	$(BIN)/python benchmarks/published_memory.py $(BENCH_ARGS)

loss-curves: venv ## Validation losses of 2bw and pipedream beside 1f1b's, as a table, and as a picture in docs/images
	$(BIN)/python benchmarks/delayed_losses.py $(BENCH_ARGS)

# Runs from the source tree: no environment is made, since a GPU machine has a torch of its own.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
GPU_TESTS = $(shell grep -rl --include='test_*.py' 'mark\.gpu' tests)
gpu-check: ## On one CUDA GPU, with torch, numpy and pydantic: figures as JSON and a table; then the GPU tests, where their packages are
	@PYTHONPATH=typings $(GPU_PYTHON) benchmarks/gpu.py $(GPU_ARGS); figures=$$?; \
	found=$$(PYTHONPATH=typings:tests $(GPU_PYTHON) -c "import pytest_asyncio, pytest_timeout, conftest" 2>&1 | tail -n 1); \
	case "$$found" in \
	*"No module named"*) echo "The GPU tests were left out: a package that they need is missing ($$found)." ;; \
	*) PYTHONPATH=typings $(GPU_PYTHON) -m pytest -m gpu $(GPU_TESTS) $(PYTEST_ARGS) ;; \
	esac && exit $$figures

clean: ## Remove all that make made: .venv, tools, builds, caches
	rm -rf .venv .tools build *.egg-info $(UI)/dist $(UI)/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/.installed-run .venv/.installed-dev: .venv/.installed-%: pyproject.toml constraints.txt
	@$(PYTHON) deploy/setup/environment.py $*

# npm ci begins by removing node_modules and vite by emptying dist: the stamps inside say that the last run came to its end.
$(UI)/node_modules/.installed: $(UI)/package.json $(UI)/package-lock.json
	$(NPM) ci --loglevel=error
	@touch $@

$(UI)/dist/.built: $(UI)/node_modules/.installed $(UI_SOURCES)
	$(NPM) run --silent build
	@touch $@

.tools/helm: constraints.txt deploy/setup/helm.py | .venv/.installed-dev
	@$(BIN)/python deploy/setup/helm.py
