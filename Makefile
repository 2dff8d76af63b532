# Every target is complete: it makes its virtual environment, installs, builds and runs. It asks for nothing but
# Python 3.11 or newer, a C compiler and PyPI; tools/with_spark.py says where Java comes from.

# The first Python that is new enough. Another one: make test PYTHON=/some/python3
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
VENV41 ?= .venv-spark41
VENV_ENGINES ?= .venv-engines
VENV_DOCS ?= .venv-docs
SANITIZED := build/sanitized
COVERED := build/coverage
COMMA := ,
PLATFORM := manylinux_2_17_$(shell uname -m)

PACKAGE := rmqstore_spark native_io pyspark_rmqstore.py
BIN := $(VENV)/bin

# Where a machine has this set, each of the hundreds of processes that the tests start compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-long test-nightly interop golden lint format house reference docs docs-serve bench wheel sdist try-wheel build \
	coverage sanitize sanitize-machine sanitize-portable sanitize-threads fuzz fuzz-memory soak mutants mutants-kernel test-spark41 test-engines clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed-demo ## read sample_store and show what is in it
	@ls native_io/*.so >/dev/null 2>&1 || echo "The kernel is compiled: a minute or two without a word"
	@$(BIN)/python setup.py -q build_ext
	@$(BIN)/python tools/with_spark.py examples/demo.py sample_store

# One worker has all that starts Spark (tests/conftest.py), so there is one at a time. There is one worker more than
# cores, as those who have the brokers wait more than they work. ARGS=-n0: one process.
test: build ## run the tests (ARGS="-k word" and the like go to pytest)
	$(BIN)/python tools/with_spark.py -m pytest -n $$(($$(nproc) + 1)) -m "not long" $(ARGS)

test-long: build ## run the others: most with brokers, clusters of machines, kills, every bit of a store
	$(BIN)/python tools/with_spark.py -m pytest -n 3 -m "long and not nightly" $(ARGS)

# Lakes have jars for older versions of Spark only.
test-nightly: build $(VENV41)/.installed ## run what is left: further combinations of what the others try
	$(BIN)/python tools/with_spark.py -m pytest -n 3 -m nightly $(ARGS)
	$(VENV41)/bin/python tools/with_spark.py -m pytest tests/spark/test_spark_lakes.py

# A worker for each core: one more would have to collect all tests, too, which costs more than the waiting it fills.
test-fast: build ## run the quick tests, without Spark and brokers, on all cores
	$(BIN)/python -m pytest -n $$(nproc) -m "not spark and not interop and not slow" $(ARGS)

interop: build ## run the tests with real brokers alone; needs Maven and a JDK, where `make test` can do without
	RMQ_INTEROP=1 $(BIN)/python -m pytest -m interop $(ARGS)

golden: build ## have real brokers write the stores in tests/data/golden anew (ARGS="5.3.0" only that one)
	$(BIN)/python tests/interop/make_golden.py $(ARGS)

lint: $(VENV)/.installed ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed ## format the Python code and repair what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

house: $(VENV)/.installed ## draw docs/house.svg, the picture of who imports whom
	$(BIN)/python tools/house.py

reference: build ## write the parts of README and docs/ that the code says, and their pictures
	$(BIN)/python tools/reference.py

# Material for MkDocs prints an advertisement of its successor at every run; the variable turns it off.
docs: $(VENV_DOCS)/.installed ## make the website of README and docs/ in build/site
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/mkdocs build --quiet --strict

docs-serve: $(VENV_DOCS)/.installed ## show that website on this machine, and make it anew when a page changes
	NO_MKDOCS_2_WARNING=1 $(VENV_DOCS)/bin/mkdocs serve --strict

bench: build ## measure speed and memory; prints a table of ratios
	$(BIN)/python tools/with_spark.py benchmarks/bench.py $(ARGS)

# The kernel calls nothing that glibc 2.17 lacks, wherever it is built; auditwheel fails should that change.
wheel: $(VENV)/.installed ## build a wheel into dist/, for all Pythons and Linuxes on this kind of processor
	rm -rf build/lib.* build/bdist.* build/wheel  # setuptools would pack modules that are long deleted
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --strip --plat $(PLATFORM) --wheel-dir dist build/wheel/*.whl

sdist: $(VENV)/.installed ## build a source distribution into dist/
	$(BIN)/python setup.py -q sdist --dist-dir dist

try-wheel: ## install the wheel in dist/ where no compiler is, and use it (ARGS="--pyspark 4.1.*")
	$(PYTHON) tools/try_wheel.py $(ARGS)

build: $(VENV)/.installed ## install into .venv (the source tree itself) and compile the kernel
	@$(BIN)/python setup.py -q build_ext

# The kernel's own tests on a kernel that stops at the first bad access or undefined behaviour: as it is compiled for
# this machine, and as for one of another kind (native_io/machine.h). It lies in a copy of the tree, so that nothing
# else ever runs on it by accident; with RMQ_SANITIZED tests/conftest.py insists on it.
# libstdc++ is preloaded because ASan looks up C++'s exception functions (pyarrow throws) before Python loads it;
# Nothing is optimized (setup.py's own -O3 comes before): it takes half as long in all, and no access is left out.
# --capture=sys leaves file descriptor 2 alone, else pytest would swallow a sanitizer's last words.
sanitize: $(VENV)/.installed ## run the kernel's tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory -j2 -Otarget sanitize-machine sanitize-portable

sanitize-machine:
	$(call run-sanitized,machine,,$(filter-out %/test_headers.py,$(wildcard tests/kernel/test_*.py)))

# Those of code that is another one there: checksums, zlib, properties, sorted blocks, and what uses them.
sanitize-portable:
	$(call run-sanitized,portable,-DRMQ_PORTABLE,$(patsubst %,tests/kernel/test_%.py,batches conditions decode encode expand properties rocksdb scan select))

# ThreadSanitizer, with the tests whose threads call the kernel at the same time. Python and Arrow are not compiled for
# it: it sees their locks, and judges what the kernel does between them.
WITH_THREADS := $(addprefix tests/,face/test_threads.py read/test_parallel.py write/test_background.py write/test_rebuild.py \
	write/test_write.py face/test_deleted_while_copied.py)
sanitize-threads: $(VENV)/.installed ## run tests that use threads under ThreadSanitizer
	$(call build-sanitized,threads,thread)
	cd $(SANITIZED)/threads && RMQ_SANITIZED=thread LD_PRELOAD="$$(gcc -print-file-name=libtsan.so)" \
		TSAN_OPTIONS="halt_on_error=1 exitcode=66 suppressions=$(CURDIR)/tests/support/threads.supp" \
		"$(CURDIR)/$(BIN)/python" -m pytest -p no:cacheprovider --capture=sys -m "(not slow or sample) and not spark and not interop and not long" \
		$(or $(ARGS),$(WITH_THREADS))

# Which branches of the package and of the kernel's C the tests pass: with a kernel that counts them, in a copy of the
# tree, as for the sanitizers. A test may fail, as all is slower. The tests are those of `make test` but for Spark and
# brokers, which take most of its time; what only they pass is listed as that. Each run draws the same numbers.
# ARGS="tests/store": these tests only.
coverage: $(VENV)/.installed ## measure which branches, Python's and C's, the tests pass that need no Spark and no brokers
	$(BIN)/python -m pip install --quiet "coverage>=7.10" gcovr
	rm -rf $(COVERED)
	mkdir -p $(COVERED)
	git ls-files -z | xargs -0 cp -p --parents -t $(COVERED)
	$(call make-unhurried-cc,$(COVERED))
	cd $(COVERED) && CC=./unhurried-cc CFLAGS="--coverage -fprofile-update=prefer-atomic" LDFLAGS=--coverage \
		"$(CURDIR)/$(BIN)/python" setup.py -q build_ext
	-cd $(COVERED) && RMQ_TEST_SEED=1 PYTHONPATH="$(abspath $(COVERED))" "$(CURDIR)/$(BIN)/python" -m coverage run \
		-m pytest -p no:cacheprovider -n $$(nproc) -m "not long and not spark and not interop" --ignore=tests/repo $(ARGS)
	cd $(COVERED) && "$(CURDIR)/$(BIN)/coverage" combine --quiet
	cd $(COVERED) && "$(CURDIR)/$(BIN)/coverage" report --skip-covered --sort=miss
	cd $(COVERED) && "$(CURDIR)/$(BIN)/gcovr" --root . --filter 'native_io/.*[.]h$$' --txt-metric branch \
		--txt - --json build/kernel.json
	cd $(COVERED) && "$(CURDIR)/$(BIN)/coverage" json --quiet -o build/python.json
	cd $(COVERED) && "$(CURDIR)/$(BIN)/python" tools/uncovered.py build/python.json build/kernel.json

# make-unhurried-cc(directory): a compiler that optimizes nothing, whatever setup.py says
define make-unhurried-cc
	printf '#!/bin/sh\nexec gcc "$$@" -O0\n' >$(1)/unhurried-cc
	chmod +x $(1)/unhurried-cc
endef

# build-sanitized(directory, sanitizers, more compiler flags)
define build-sanitized
	rm -rf $(SANITIZED)/$(1)
	mkdir -p $(SANITIZED)/$(1)
	cp -Rp $(PACKAGE) tests sample_store *.md LICENSE NOTICE setup.py setup.cfg pyproject.toml $(SANITIZED)/$(1)
	rm -f $(SANITIZED)/$(1)/native_io/*.so
	$(call make-unhurried-cc,$(SANITIZED)/$(1))
	cd $(SANITIZED)/$(1) && CC=./unhurried-cc LDFLAGS="-fsanitize=$(2)" \
		CFLAGS="-g -fsanitize=$(2) -fno-sanitize-recover=all -fno-omit-frame-pointer $(3)" \
		"$(CURDIR)/$(BIN)/python" setup.py -q build_ext
endef

# run-sanitized(directory, more compiler flags, tests)
define run-sanitized
	$(call build-sanitized,$(1),address$(COMMA)undefined,$(2))
	cd $(SANITIZED)/$(1) && RMQ_SANITIZED=1 PYTHONMALLOC=malloc \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
		"$(CURDIR)/$(BIN)/python" -m pytest -p no:cacheprovider --capture=sys -m "not spark" $(ARGS) \
		$(or $(3),$(error no kernel tests))
endef

# What it finds is left in tests/fuzz/failed/. ARGS="--only log --jobs 1 --keep 300".
fuzz: $(VENV)/.installed ## attack the kernel's C with inputs that libFuzzer draws, SECONDS=60 in all; needs clang
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --seconds $(or $(SECONDS),60) $(ARGS)

# The same inputs for another sanitizer: with --memory, MemorySanitizer.
fuzz-memory: $(VENV)/.installed ## the same, for memory that is read before it was written; without what needs libraries
	PYTHONPATH=tests $(BIN)/python -m fuzz.run --memory --seconds $(or $(SECONDS),60) $(ARGS)

# ARGS="--seed 1 --version 5.1.4".
soak: build ## do what chance draws to one store, beside a real broker, MINUTES=60; needs Maven and a JDK
	PYTHONPATH=.:tests $(BIN)/python -m interop.soak --minutes $(or $(MINUTES),60) $(ARGS)

# What was judged is in build/mutants/; a second run goes on. ARGS="--seed 48 --count 2000 --minutes 120".
mutants: build ## draw mutants of the package, and say which of them the quick tests do not notice; MINUTES=60
	PYTHONPATH=.:tests $(BIN)/python -m mutants.run --minutes $(or $(MINUTES),60) $(ARGS)

mutants-kernel: build ## the same for the functions of the kernel's C, all compiled at once
	PYTHONPATH=.:tests $(BIN)/python -m mutants.kernel $(ARGS)

# The pages' examples are what the other tests do, in other words: they are run by the newest PySpark alone.
test-spark41: build $(VENV41)/.installed ## run the tests that use Spark on PySpark 4.1, without the slow ones
	$(VENV41)/bin/python tools/with_spark.py -m pytest -m "spark and not slow" $(ARGS)

test-engines: build $(VENV_ENGINES)/.installed ## run the examples for Ray Data and Daft, and ClickHouse, which are large
	$(VENV_ENGINES)/bin/python -m pytest tests/tables/test_engines.py $(ARGS)

clean: ## remove all that was made, the virtual environments too
	rm -rf $(VENV) $(VENV41) $(VENV_ENGINES) $(VENV_DOCS) build dist *.egg-info spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f native_io/*.so native_io/_*.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A comma would end an argument of `call`.
DEMO_EXTRAS := cli,build

# An environment is made anew only when the requirements change. (The kernel needs no stamp: setuptools compiles it
# only when its sources changed.)
$(VENV)/.installed-demo: setup.cfg pyproject.toml
	$(call install,$(VENV),$(DEMO_EXTRAS))

# What all other targets need, too.
$(VENV)/.installed: $(VENV)/.installed-demo
	RMQ_KERNEL_APART=1 $(BIN)/python -m pip install --quiet --editable ".[test,lint,wheel]"
	@touch $@

$(VENV41)/.installed: setup.cfg pyproject.toml
	$(call install,$(VENV41),test,"pyspark==4.1.*" pysail)

$(VENV_ENGINES)/.installed: setup.cfg pyproject.toml
	$(call install,$(VENV_ENGINES),test,"ray[data]" daft chdb)

# The website needs nothing of the package: what the code says stands in the pages (`make reference`).
$(VENV_DOCS)/.installed: requirements-docs.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV_DOCS)
	$(VENV_DOCS)/bin/python -m pip install --quiet --requirement requirements-docs.txt
	@touch $@

# install(environment, extra, more requirements)
define install
@sh tools/missing.sh "$(PYTHON)"
@echo "$(1) is made anew: some minutes without a word, as PySpark is large"
$(PYTHON) -m venv $(1)
$(1)/bin/python -m pip install --quiet --upgrade pip
RMQ_KERNEL_APART=1 $(1)/bin/python -m pip install --quiet --editable ".[$(2)]" $(3)
@touch $@
endef
