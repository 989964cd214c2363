# Every target installs its requirements into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SEED ?= 1
SECONDS ?= 900
EXAMPLES ?= 1000

.PHONY: help demo test test-others test-browser test-slow test-cluster check test-gpu conformance corpus chaos fuzz test-upgrade soak bench-loop bench-turn bench-elastic bench-heavy-start bench-models bench-bands bench-quality bench-jct bench-simulate bench-allocator bench-resources bench-kubernetes bench-health bench-ingest bench-streams bench-reads screenshots bench-web web openapi manifests release clean
help:
	@echo "make demo    watch a training job get measured, resized and verified (3 minutes)"
	@echo "make test    run the tests, all but slow ones"
	@echo "make test-slow  run the tests that keep a whole system busy for tens of seconds (15 minutes)"
	@echo "make test-cluster  run the Kubernetes suite on the cluster in BRAIN_TEST_KUBECONFIG"
	@echo "make test-gpu  run the tests that need a GPU (8 minutes; PYTHON= an interpreter to use as it is, PART='forked killed')"
	@echo "make check   run lint, types, import contracts and doctests"
	@echo "make conformance  compare brain-run with torchrun, every case live (needs torch)"
	@echo "make corpus  run, kill, resize and stop third-party training programs, compared with torchrun (40 minutes; FULL=1 ONLY=accelerate)"
	@echo "make chaos   cause each fault 20 times at random moments (SEED=$(SEED))"
	@echo "make fuzz    send generated requests to the service, and damaged messages to each decoder (EXAMPLES=$(EXAMPLES))"
	@echo "make test-upgrade  upgrade the programs of the previous release while a job trains (4 minutes)"
	@echo "make soak    cause faults on several hosts, then 200 changes under DDP, 200 in process and 500 fresh starts (SECONDS=$(SECONDS) SEED=$(SEED) STARTS=500)"
	@echo "make bench-loop  measure the probe's cost and the loop's latency (4 minutes)"
	@echo "make bench-turn  measure a decision turn for one job and for a pool of 2,000 jobs"
	@echo "make bench-elastic  measure the cost of a world change, compared with torchrun (35 minutes; ONLY='torchrun tuned;brain-run in process;kills;session')"
	@echo "make bench-heavy-start BASE=DIR  measure a start with heavy imports, compared with an older commit's checkout (3 minutes)"
	@echo "make bench-models  predict step times from a few points, compared with the fits of Pollux and Optimus"
	@echo "make bench-bands  check bands on jobs with known step times, compared with an older commit (5 minutes)"
	@echo "make bench-quality  compare the loss with and without changes of world and batch (15 minutes; ONLY='digits by CNN')"
	@echo "make bench-jct  measure completion times in published simulators, compared with Pollux, Sia, Tiresias and Optimus (40 minutes; FULL=1 takes hours)"
	@echo "make bench-simulate  measure completion times in a small crowded pool by brain simulate, compared with Tiresias (ONLY='asked owners')"
	@echo "make bench-resources  check advice on resources: amounts compared with Kubernetes' autoscaler, memory leaks, real jobs that lack resources"
	@echo "make bench-allocator  divide a cluster among 100 to 10,000 jobs, compared with HiGHS and a greedy heap"
	@echo "make bench-kubernetes  measure the load of operator and Brain on a cluster, with faults, compared with an older commit and kopf (15 minutes; BRAIN_BENCH_KUBECONFIG= a cluster)"
	@echo "make bench-health  check that bad nodes, hangs and failures are detected without false alarms (3 minutes)"
	@echo "make bench-ingest  measure ingest of telemetry on SQLite and PostgreSQL, compared with a plain service and time-series databases (8 minutes)"
	@echo "make bench-streams  measure 500 event streams, compared with a plain fan-out of the same messages (3 minutes)"
	@echo "make bench-reads  read lists and series over 2 million samples, compared with plain SQL (6 minutes; FULL=1 has 24 million)"
	@echo "make bench-web  measure the dashboard in browser and service, compared with a plain list and plain charts (5 minutes; needs node)"
	@echo "make manifests  generate kinds, roles, reference and manifests from their source"
	@echo "make release  build wheel, sdist, hash-pinned requirements and SBOM in dist/"
	@echo "make web     rebuild the dashboard (needs node)"
	@echo "make screenshots  take the documents' screenshots from a running Brain"

# Compiling every module of every package takes longer than the rest of the installation; Python
# compiles those that it imports.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/brain demo

# A browser driver keeps an event loop in its process: its tests run in one of their own, while the
# others, which mostly wait for processes, run beside it.
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 --keep-going test-others test-browser

test-others: $(READY)
	$(BIN)/pytest -m "not slow and not chaos and not upgrade" --ignore tests/web --numprocesses 3 --dist worksteal

test-browser: $(READY)
	$(BIN)/pytest tests/web

test-slow: $(READY)
	$(BIN)/python -m benchmarks.slow_tests

test-cluster: $(READY)
	$(BIN)/python -m tests.kubernetes.real

# A PYTHON that somebody names is used as it is, and nothing is installed.
ifeq ($(origin PYTHON),file)
test-gpu: $(READY)
	$(BIN)/python -m tests.gpu $(PART)
else
test-gpu:
	$(PYTHON) -m tests.gpu $(PART)
endif

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q --doctest-modules --override-ini testpaths= \
		$$(grep -rl '>>> ' --include='*.py' brain collectors launcher scaler)

conformance: $(READY)
	$(BIN)/python -m tests.launcher.conformance

corpus: $(READY)
	$(BIN)/python -m benchmarks.corpus $(if $(FULL),--full) $(if $(ONLY),--only "$(ONLY)")

chaos: $(READY)
	BRAIN_CHAOS_SEED=$(SEED) $(BIN)/pytest -m chaos --timeout 1800 -s

fuzz: $(READY)
	BRAIN_TEST_FUZZ=$(EXAMPLES) $(BIN)/pytest --hypothesis-profile=search --timeout 7200 tests/test_decoders.py tests/api/test_contract.py

test-upgrade: $(READY)
	$(BIN)/pytest -m upgrade tests/upgrade

soak: $(READY)
	$(BIN)/python -m tests.soak --seconds $(SECONDS) --seed $(SEED) $(if $(STARTS),--starts $(STARTS))

bench-loop: $(READY)
	$(BIN)/python -m benchmarks.loop

bench-turn: $(READY)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.turn

bench-elastic: $(READY)
	$(BIN)/python -m benchmarks.elastic $(if $(ONLY),--only '$(ONLY)')

bench-heavy-start: $(READY)
	$(BIN)/python -m benchmarks.heavy_start $(BASE)

bench-models: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.models

bench-bands: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.models.bands

bench-quality: $(READY)
	$(BIN)/python -m benchmarks.quality $(if $(ONLY),--only '$(ONLY)')

bench-jct: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.jct $(if $(FULL),--full)

bench-simulate: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.simulate $(if $(ONLY),--only $(ONLY))

bench-resources: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.resources $(or $(ONLY),$(if $(filter-out file,$(origin SEED)),$(SEED)))

bench-health: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.health

bench-ingest: $(READY)
	$(BIN)/python -m benchmarks.ingest

bench-streams: $(READY)
	$(BIN)/python -m benchmarks.ingest.streams

bench-reads: $(READY)
	$(BIN)/python -m benchmarks.ingest.reads $(if $(FULL),--full)

# Bare uPlot is the peer of the charts.
bench-web: $(READY)
	cd web && npm ci --no-audit --no-fund
	$(BIN)/python -m benchmarks.web

bench-allocator: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.allocator

# kopf is the peer; nothing else needs it.
bench-kubernetes: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.kubernetes

web:
	cd web && npm ci --no-audit --no-fund && npm run build

screenshots: $(READY)
	$(BIN)/python -m tests.web.screenshots

openapi: $(READY)
	$(BIN)/python -m brain.api > docs/reference/openapi.json

manifests: $(READY)
	$(BIN)/python -m scaler.kubernetes.kinds
	$(BIN)/python -m deploy.render

# Wheel, sdist, what to install beside them pinned by hash, and the SBOM of exactly that. torch is
# not in the pins: its build depends on your accelerators.
release: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[release]'
	rm -rf dist build/release
	$(BIN)/python -m build --outdir dist .
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-annotate \
		--no-emit-options --unsafe-package elastic-brain --constraint constraints.txt \
		--extra server --extra host --extra kubernetes --extra otel --output-file dist/requirements.txt pyproject.toml
	$(PYTHON) -m venv build/release
	build/release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r dist/requirements.txt
	build/release/bin/pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	cd build && release/bin/brain --help >/dev/null && release/bin/brain-run --help >/dev/null
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.cdx.json build/release/bin/python
	ls -l dist

clean:
	rm -rf .venv dist build web/node_modules
