# Everything installs itself: Debian packages where missing, then .venv from constraints.txt.
# PYTHON=python3.11 chooses the interpreter, JOBS=4 the number of pytest workers (default: the cores).

# Where it is set, each of hundreds of processes would compile the package and its tests anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick coverage matrix versions nightly docs lint lint-types lint-firmware lint-rest install system clean

BIN := .venv/bin
STAMP := .venv/.installed
JOBS ?= $(shell nproc)
# The own tests wait half of their time: for boards in real time, for programs that hang on purpose.
OWN_JOBS ?= $(shell echo $$(($(JOBS) * 2)))
QUICK := $(addprefix tests/harness/, errors host program targets campaigns/report runner/links \
	test_command_lines.py test_docs.py)
# Those that Python, a library or torch can break; other tests' programs are in the versions' sample of tests/targets.
VERSIONS_QUICK := $(addprefix tests/harness/, host targets runner/links campaigns/report test_command_lines.py test_docs.py \
	lowering/test_torch_shortcuts.py)
SCHEMA := $(BIN)/python -c 'from cortex_m_hil.host.toolchain import schema_directory as it; print(it())'
# What make test leaves to make demo and make nightly: whole networks, floats, the other layout, and further shapes.
LEFT := explicit quantized-24 llama stresnet mobilenet ds_cnn attention frames_one branches_in test_float promoted oblong \
	1xn odd tall stride 4d backwards apart keepdim pad_ short images cat_first relu_image multiplier dilated sparse offsets batches \
	no_bias wide_padding per_channel counts pool_sums ceil relu6 masked unsqueeze deep_autoencoder tanh silu log conv_1x1 grouped \
	add_relu linear_rows maximum_broadcast max_pool_3x3 volumes bags enlargements dense truths
SOME := (conv_3x3 or not ($(subst $(eval) , or ,$(strip $(LEFT))))) and (not test_model or mlp)
# The static analyzer takes 95 % of clang-tidy's time: make nightly runs it.
TIDY_CHECKS ?= -clang-analyzer-*
FIRMWARE_SOURCES = find firmware -type f \( -name '*.c' -o -name '*.h' -o -name '*.cpp' \)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: install ## install what is missing, then run the sample tests on three targets, and compare their bits
	$(BIN)/pytest -n $(JOBS) --maxprocesses=8 -rfE --disable-warnings --target=m55-fvp,m4-fvp,m0plus-fvp \
		tests/targets tests/harness/flow/test_isa_agreement.py

test: lint ## lint, the own tests, tests/targets on three targets: what takes long is left to make nightly
	$(BIN)/pytest -n $(OWN_JOBS) --dist worksteal --durations=20 tests/harness tests/ci
	$(BIN)/pytest -n $(JOBS) --target=m55-fvp,m4-fvp,m0plus-fvp tests/targets -k '$(SOME)'

quick: lint ## lint, and some of the own tests, those of values and formats: what a pull request waits for
	$(BIN)/pytest -n $(OWN_JOBS) --dist worksteal $(QUICK)

coverage: install ## all own tests, also the slow ones, and the lines of harness/ that they execute: counting doubles the time of an import of ExecuTorch
	$(BIN)/pytest -n $(OWN_JOBS) --dist worksteal -m "slow or not slow" --cov --cov-report=term --cov-fail-under=66 tests/harness tests/ci

matrix: install ## the own tests on Python 3.10 to 3.13, as far as they are installed
	$(BIN)/tox run --skip-missing-interpreters true

versions: install ## releases of ExecuTorch and torch on each Python, with a row for each in docs/runtimes.md; VERSIONS=newest tries what pip installs today
	$(BIN)/python ci/versions.py --jobs $(JOBS) --quick '$(VERSIONS_QUICK)' $(VERSIONS)

nightly: install ## what takes too long for make test, or needs a package index: hil nightly on six targets with ExecuTorch's suite, tests/targets with red zones, coverage of kernels, all known bugs, goodput, a soak, 60 kills, 10,000 mutated programs
	$(BIN)/hil nightly --plan ci/nightly.yaml -j $(JOBS) --report build/nightly
	$(MAKE) lint-firmware TIDY_CHECKS=  # with the static analyzer
	rm -rf build/programs
	$(BIN)/pytest -n $(JOBS) --target=native --redzones --keep-programs build/programs tests/targets
	$(BIN)/python ci/kernel_coverage.py build/programs
	cd firmware && HIL_SCHEMA_DIR=$$(../$(SCHEMA)) cmake --preset coverage && cmake --build ../build/coverage
	$(BIN)/python ci/firmware_coverage.py build/coverage build/programs
	$(MAKE) coverage
	$(BIN)/pytest tests/nightly
	cp tests/nightly/models.md build/nightly/models.md  # asserted by test_models.py above
	$(BIN)/pytest -n $(JOBS) -m slow --target=m55-qemu,m4-qemu,m0-qemu tests/targets
	$(BIN)/python ci/soak.py --runs 1000 --vanish-every 100
	$(BIN)/python ci/leftover_processes.py --repetitions 1000 --busy 8
	$(BIN)/python ci/kill_test_runs.py --rounds 2
	$(BIN)/hil dev fuzz tests/fuzz_seeds/*.pte harness/cortex_m_hil/program/known_answer/*.pte --target native --count 10000 --seed $$(date +%Y%m%d)
	$(BIN)/hil dev fuzz tests/fuzz_seeds/*.pte harness/cortex_m_hil/program/known_answer/*.pte --target m4-qemu --count 300 --seed $$(date +%Y%m%d)

docs: install ## the site of the docs, with a search, in build/site; a dead link is an error
	rm -rf build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs --doctree-dir build/doctrees . build/site

lint: install ## ruff, mypy, import-linter, docstrings, budgets, the workflows, clang-format and clang-tidy; changes nothing
	$(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target lint-types lint-firmware lint-rest

lint-types:
	$(BIN)/mypy

lint-firmware:
	$(FIRMWARE_SOURCES) -exec clang-format --dry-run -Werror {} +
	cd firmware && HIL_SCHEMA_DIR=$$(../$(SCHEMA)) cmake --preset tidy --log-level=ERROR
	cmake --build build/tidy --target runtime/builtin/include/program_generated.h
	cd firmware && { run-clang-tidy -quiet -j $(JOBS) -checks='$(TIDY_CHECKS)' -p ../build/tidy 2>../build/tidy/messages || \
		{ cat ../build/tidy/messages; exit 1; }; }

lint-rest:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python ci/check_docstrings.py harness ci tests/support
	$(BIN)/python ci/check_budgets.py
	$(BIN)/zizmor --offline --quiet .github action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml

install: $(STAMP) ## Debian packages where missing, and .venv with the project (editable)

system:
	@ci/install.sh system

$(STAMP): pyproject.toml constraints.txt | system
	@ci/install.sh venv

clean: ## remove .venv, caches and build products from this folder
	rm -rf .venv build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .tox
	find harness tests ci -type d -name __pycache__ -prune -exec rm -rf {} +
