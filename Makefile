# Every target sets up what it needs. `make demo` and `make test` are the two to start with.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
# Each worker starts with a half of the tests of its own, so that few kernels are compiled twice.
PARALLEL = -n $(WORKERS) --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Modules are compiled to bytecode once, not by each worker and each program that the tests start.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test test-plain warm kernels quick nightly test-slow test-without-openfst fuzz faults bounds mutants lint types bench bench-readme papers learning learning-genomes learning-phones learning-quick learning-recipes dist-test processors release-check docs docs-browser docs-clean clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The plain install: what a user of the command line gets.
$(VENV)/.core: $(BIN)/python setup.cfg pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# Everything that the tests, the linters and the benchmarks use.  PyTorch is taken where pip finds a
# wheel without the index (PIP_FIND_LINKS); the build on the index brings gigabytes of CUDA, so that
# one is left to you: TORCH=torch.  Without PyTorch its tests are skipped.
TORCH ?=
$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --no-index --no-deps torch 2>/dev/null || \
	    echo "No PyTorch wheel at hand: its tests will be skipped (make test TORCH=torch)."
	$(BIN)/python -m pip install --quiet --editable ".[test,dev]" $(TORCH) \
	    $$($(BIN)/python -m pip show --quiet torch 2>/dev/null && echo torch)
	touch $@

# The exact gradient of 2,000 real pairs under the edit distance.
demo: $(VENV)/.core
	mkdir -p build
	$(BIN)/fstgrad grad data/cmudict2000.tsv --tokens-y words --loss edit --order 2 \
	    --random-weights 0 --output build/demo.npz > build/demo.jsonl

# Three levels: `make quick` for every save, `make test`, and the whole check, `.ci/run`.  What takes
# longer runs at night, `make nightly`.
test: warm
	$(BIN)/python -m pytest $(PARALLEL)

# The list of kernels that wheels bring compiled: what the first steps of each kind of user call.
# The first round compiles them, and what else they need; the second one records the calls.
kernels: warm
	$(BIN)/python -m tests.first_steps
	rm -rf build/kernels && mkdir -p build/kernels
	FSTGRAD_RECORD_KERNELS=$(CURDIR)/build/kernels $(BIN)/python -m tests.first_steps
	$(BIN)/python -c "import pathlib; from fstgrad.core.precompile import write_manifest; \
	    write_manifest(pathlib.Path('build/kernels'))"

# The tests closest to the files that differ from the branch main, for at most a minute.
quick: $(VENV)/.dev
	$(BIN)/python -m tests.quick

# Compile the list of kernels in as many processes as there are cores: workers of the tests would
# compile the same ones at the same time.
warm: $(VENV)/.dev
	$(BIN)/python -m fstgrad.core.precompile

# Slow tests that have found something; .ci/run has them.
test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) -m slow

# The tests that .ci/run leaves out, a longer fuzzer, faults, and mutants of another sample each night.
nightly: warm
	FSTGRAD_FRESH=1 $(BIN)/python -m pytest $(PARALLEL) -m "nightly or not slow" tests/test_documents.py
	$(BIN)/python -m pytest $(PARALLEL) -m nightly --ignore=tests/test_documents.py
	$(MAKE) fuzz SECONDS=1800 SEED=$$(date +%j)
	$(MAKE) faults
	$(MAKE) processors
	$(MAKE) mutants SEED=$$(date +%j)

# Small defects in 300 places, and in 100 of kernels: does a test notice each?  An hour or more.
SAMPLE ?= 300
mutants: $(VENV)/.dev
	$(BIN)/python -m tests.mutants --sample $(SAMPLE) --seed $(SEED)
	$(BIN)/python -m tests.mutants --kernels --sample $$(($(SAMPLE) / 3)) --seed $(SEED)

# The tests that can differ where pynini cannot be installed.
test-without-openfst: $(VENV)/.dev
	FSTGRAD_WITHOUT=pynini $(BIN)/python -m pytest $(PARALLEL) tests/losses tests/objectives \
	    tests/strings tests/learning tests/costs

# The fuzzer: prints what it finds and keeps the inputs in build/fuzz/findings.
SECONDS ?= 120
SEED    ?= 0
fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz.runner --seconds $(SECONDS) --seed $(SEED)

# A hundred kills a target, full disks, closed pipes, flipped bits, small memory.
faults: $(VENV)/.dev
	$(BIN)/python tests/faults.py

# The folders of tests that add kernels or calls of them.
WITH_KERNELS := $(addprefix tests/,losses objectives strings learning grm mrf trees costs)

# These with every index of a kernel checked, and with new arrays filled with NaN and indices out of
# bounds; then the others.  .ci/run has both in place of `make test`.
bounds: export NUMBA_BOUNDSCHECK = 1
bounds: export FSTGRAD_DEBUG_EMPTY = 1
bounds: $(VENV)/.dev
	$(BIN)/python -m fstgrad.core.precompile
	$(BIN)/python -m pytest $(PARALLEL) $(WITH_KERNELS)

test-plain: warm
	$(BIN)/python -m pytest $(PARALLEL) $(addprefix --ignore=,$(WITH_KERNELS))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy reads the tree as it is installed, cli/ and grammars/ inside the package, and the benchmarks.
types: $(VENV)/.dev
	rm -rf build/types && mkdir -p build/types/fstgrad
	for entry in fstgrad/* cli grammars; do \
	    ln -s "$(CURDIR)/$$entry" build/types/fstgrad/; done
	cd build/types && $(abspath $(BIN))/mypy --config-file "$(CURDIR)/pyproject.toml" -p fstgrad
	cd benchmarks && MYPYPATH="$(CURDIR)/build/types" $(abspath $(BIN))/mypy --config-file mypy.ini .

bench: $(VENV)/.dev
	for program in $(filter-out benchmarks/papers.py, $(wildcard benchmarks/[a-z]*.py)); do $(BIN)/python $$program --quick || exit 1; done

# The tables behind the numbers of the README, in full, also as JSON in build/bench.
bench-readme: $(VENV)/.dev
	mkdir -p build/bench
	for name in compile engines chain risk trees grid torch_overhead torch_users; do \
	    $(BIN)/python benchmarks/$$name.py --json build/bench/$$name.json || exit 1; done

# The tables and figures of the papers, into docs/papers: 20 minutes, or 3 with QUICK=1;
# PAPERS="cortes inouye" takes some of them, CHECK=1 compares the values with the files.
PAPERS ?=
papers: $(VENV)/.dev
	$(BIN)/python benchmarks/papers.py $(if $(QUICK),--quick) $(if $(CHECK),--check) $(PAPERS)

# The learning experiments of docs/performance/learning.md.
learning-quick: $(VENV)/.dev
	$(BIN)/python benchmarks/learning.py --quick
	$(BIN)/python benchmarks/recipes.py --quick

learning-genomes learning-phones: learning-%: $(VENV)/.dev
	mkdir -p build
	$(BIN)/python benchmarks/learning.py $* --json build/learning-$*.json

learning-recipes: $(VENV)/.dev
	mkdir -p build
	$(BIN)/python benchmarks/recipes.py table --json build/learning-recipes.json

learning: $(VENV)/.dev
	mkdir -p build
	$(BIN)/python benchmarks/learning.py --json build/learning.json

# The site, into build/docs/html: tutorials and examples are run; a warning is an error.
$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

docs: $(VENV)/.docs
	mkdir -p build
	$(BIN)/codespell --toml pyproject.toml README.md CONTRIBUTING.md docs examples
	$(BIN)/python docs/pictures.py docs/_static/plot
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	    $(BIN)/python -m sphinx -W --keep-going -q -b html -d build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_site.py build/docs/html

# The built site in headless Chromium; screenshots into build/docs/shots.
docs-browser: docs
	$(BIN)/python docs/browse_site.py build/docs/html build/docs/shots

docs-clean:
	rm -rf build/docs docs/_static/plot docs/gallery docs/api/generated docs/jupyter_execute

# The built wheel, installed into an empty environment, against the tests of this checkout.
dist-test: $(VENV)/.dev
	rm -rf build/dist build/dist-venv build/lib* build/bdist.* && mkdir -p build
	$(BIN)/python -m build --quiet --wheel --outdir build/dist .
	$(PYTHON) -m venv build/dist-venv
	build/dist-venv/bin/python -m pip install --quiet build/dist/*.whl pytest
	cd build && dist-venv/bin/python -I -m pytest -p no:cacheprovider -c ../pyproject.toml \
	    --rootdir .. --confcutdir ../tests/dist $(DIST) ../tests/dist

# The wheel of all levels on emulated processors, with qemu-x86_64 (apt install qemu-user).
processors: $(VENV)/.dev
	FSTGRAD_KERNEL_LEVELS="x86-64-v2 x86-64-v3 x86-64-v4" $(MAKE) dist-test DIST="-m nightly"

# What a release needs: see .ci/release-check.
release-check: $(VENV)/.dev
	.ci/release-check

clean:
	rm -rf build dist $(VENV) *.egg-info
