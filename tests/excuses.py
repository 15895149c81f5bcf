"""How each command and program of the documentation is tested: which test runs it, or why none does.

A page that one test runs as a whole is in `WHOLE_PAGES`. Blocks of other pages are in `BLOCKS`, by page and by how the
block begins; the value is the test that runs it, or a sentence that says why no test does. Commands of blocks that do
not run are still parsed, and the imports of programs checked, by `tests/test_docs.py`.
"""

PAGES = "tests/clients/test_pages.py"
LONG = "It runs until it is stopped; "
TUTORIALS = "tests/clients/test_tutorials.py::test_a_tutorial_does_what_it_says"
DEVELOPMENT = "A command for developers of Ottla, which they run themselves."
FRAGMENT = "A fragment that a guide explains; the file that it is about is tested."

WHOLE_PAGES = {
    "docs/admin.md": f"{PAGES}::test_the_programs_of_the_admin_page",
    "docs/command-line.md": "tests/clients/test_command_line.py::test_the_examples_of_the_page_print_what_it_says",
    "docs/consumer.md": f"{PAGES}::test_the_programs_of_the_consumer_page",
    "docs/event-log.md": "tests/unit/log/test_event_log.py::test_the_example_of_the_page_works",
    "docs/producer.md": f"{PAGES}::test_the_programs_of_the_producer_page",
    "docs/tutorials/avro.md": TUTORIALS,
    "docs/tutorials/cluster.md": TUTORIALS,
    "docs/tutorials/connector.md": TUTORIALS,
    "docs/tutorials/pipeline.md": TUTORIALS,
    "docs/tutorials/streams.md": TUTORIALS,
    "docs/tutorials/testing.md": TUTORIALS,
    "docs/security.md": "tests/clients/test_security_page.py::test_the_set_up_of_the_page_works",
}

SHORT_BLOCKS = f"{PAGES}::test_the_short_commands_of_other_pages"
TESTING = f"{PAGES}::test_the_programs_of_the_testing_page"
STREAMS = "tests/streams/test_page.py::test_the_code_of_the_page_works"

BLOCKS = {
    "CONTRIBUTING.md": {"make setup": DEVELOPMENT},
    "README.md": {
        "make setup && .venv/bin/ottla up": LONG + f"the start is {PAGES}::test_the_start_page.",
        "echo 'hello'": f"{PAGES}::test_the_start_page",
        "make demo": "It takes a minute and Spark; tests/spark/test_demo.py runs the demo.",
        ".venv/bin/ottla up": LONG + f"{PAGES}::test_the_start_page starts it.",
        ".venv/bin/ottla cluster up": LONG + "tests/cluster/test_cluster_up.py starts it.",
        "ottla topic create orders": SHORT_BLOCKS,
        "import ottla.spark": "tests/spark/test_examples.py::test_the_example_of_the_readme_works",
        "from pyspark.sql": "It is examples/streams/word_count.py, which tests/streams/test_examples.py runs.",
        "from confluent_kafka": "tests/test_readme.py::test_the_test_works",
    },
    "docs/cluster.md": {
        "ottla cluster up": LONG + "tests/cluster/test_cluster_up.py starts it.",
        "ottla topic create orders": "It kills a broker of a cluster; tests/cluster/test_fixture.py does.",
        "ottla cluster status": "It needs a cluster; tests/cluster/test_operating.py does the same.",
        "ottla cluster reassign": "It needs a cluster; tests/cluster/test_operating.py does the same.",
        "ottla config set broker 2": "It needs a cluster; tests/cluster/test_operating.py does the same.",
        "ottla cluster restore": "It needs a ZooKeeper that lost its data; tests/cluster/test_restore.py has one.",
    },
    "docs/compaction.md": {"ottla topic create prices": SHORT_BLOCKS},
    "docs/connect.md": {
        "ottla connect up": LONG + "tests/connect/test_workers.py starts workers.",
        "ottla connect create": "It needs a worker with Spark; tests/connect/test_running.py runs such connectors.",
    },
    "docs/console.md": {
        "ottla console -b": LONG + "tests/unit/console/test_serving.py starts it.",
        "ottla console --root-path": LONG + "tests/unit/console/test_serving.py starts it.",
    },
    "docs/contributing/add-a-command.md": {'"""`ottla brokers`': FRAGMENT, ".venv/bin/ottla brokers": DEVELOPMENT},
    "docs/contributing/add-a-metric.md": {
        "FETCH_SESSIONS_MADE": FRAGMENT,
        "yield catalogue": FRAGMENT,
        ".venv/bin/python tools": DEVELOPMENT,
    },
    "docs/contributing/add-a-setting.md": {"fetch_max_bytes": FRAGMENT, ".venv/bin/python -m pytest": DEVELOPMENT},
    "docs/contributing/add-an-api.md": {
        "less src": DEVELOPMENT,
        '"""ListPartitionReassignments': FRAGMENT,
        ".venv/bin/python tools": DEVELOPMENT,
    },
    "docs/contributing/debug-with-a-seed.md": {"OTTLA_SEED": DEVELOPMENT, "make simulate": DEVELOPMENT},
    "docs/examples.md": {
        "make demo": "It takes a minute and Spark; tests/spark/test_demo.py runs the demo.",
        ".venv/bin/python examples": "tests/spark/test_examples.py::test_an_example_works",
    },
    "docs/groups.md": {"ottla group list": SHORT_BLOCKS},
    "docs/monitoring.md": {
        "ottla generate": SHORT_BLOCKS,
        "prometheus --config": LONG + "tests/clients/test_prometheus.py starts it.",
    },
    "docs/metrics.md": {"ottla up --metrics-port": LONG + "tests/scenarios/test_metrics.py asks for both pages."},
    "docs/moving-files.md": {
        "rsync": "rsync need not be installed; tests/clients/test_moved_files.py copies the same files.",
        "ottla up --read-only": LONG + "tests/clients/test_read_only.py serves such directories.",
    },
    "docs/performance-notes.md": {".venv/bin/python -m benchmarks": DEVELOPMENT},
    "docs/performance.md": {"make bench": DEVELOPMENT},
    "docs/quotas.md": {
        "kafka-configs.sh": "It needs Apache Kafka; tests/scenarios/test_security_tools.py runs it if it is there."
    },
    "docs/reading.md": {
        "import ottla": f"{PAGES}::test_the_programs_of_the_reading_page",
        "from ottla.pipeline": "It needs a schema registry; tests/unit/pipeline/test_registry.py has one.",
    },
    "docs/reference/commands.md": {"ottla --help": "It prints what this page is written from."},
    "docs/reference/settings.md": {"ottla up --config": LONG + "tests/clients/test_command_line.py runs `config`."},
    "docs/retention.md": {"ottla config set": SHORT_BLOCKS},
    "docs/spark.md": {
        "import ottla.spark": "tests/spark/test_examples.py::test_the_example_of_the_readme_works",
        "import os": "It needs a cluster of Spark; tests/spark/test_cluster.py has one.",
        "orders = (": "A fragment; tests/spark/test_options.py reads with such options.",
        "ottla.spark.sql": "A fragment; tests/spark/test_sql.py runs such queries.",
        "query = ottla": "A fragment; tests/spark/test_examples.py runs the one of README.",
        "spark-class": "It starts a cluster of Spark; tests/spark/test_cluster.py has one.",
    },
    "docs/start.md": {
        "python3 -m venv": "It installs packages, which the suite does not do.",
        "$ ottla up": f"{PAGES}::test_the_start_page",
        "$ . .venv": f"{PAGES}::test_the_start_page",
        "$ printf": f"{PAGES}::test_the_start_page",
        "from confluent_kafka": f"{PAGES}::test_the_start_page",
    },
    "docs/streams.md": {
        "ottla topic create lines": "It needs Spark and runs on; tests/streams/test_examples.py runs the app.",
        "echo 'to be": "It needs the app that runs; tests/streams/test_examples.py runs it.",
        "app.start()": "It needs an app that runs; tests/streams/test_commands.py has one.",
        "ottla stream query": "It needs an app that runs; tests/streams/test_commands.py has one.",
        "ottla stream run": "It needs Spark and runs on; tests/streams/test_commands.py runs these commands.",
        **dict.fromkeys(
            (
                "from pyspark.sql",
                'app = App("shop")',
                "# Columns",
                "# How many",
                "from ottla.streams import",
                "# A stream with",
                "from datetime",
                'app = App("tested")',
            ),
            STREAMS,
        ),
    },
    "docs/testing.md": {
        "import ottla.testing": TESTING,
        "def test_alone": "Tests without a body; tests/test_examples.py runs examples/test_with_fixtures.py.",
        "broker.fail": TESTING,
        "broker.advance": TESTING,
        "prepared = ": TESTING,
        "def test_orders_survive": "A sketch of a test with a cluster; tests/cluster/test_fixture.py has such tests.",
        "@pytest.mark.ottla(brokers=5": "A test without a body; tests/cluster/test_fixture.py has one with a marker.",
    },
    "docs/transactions.md": {"ottla txn list": SHORT_BLOCKS},
}

LINES = {
    "ottla sql": "It needs Spark; tests/spark/test_sql.py runs such queries.",
    "ottla console": LONG + "tests/unit/console/test_serving.py starts it.",
    "ottla bench": "It takes ten seconds; the page of the command line has a shorter one.",
    "ottla log verify": "The page of the command line verifies the directory of its broker.",
    "source <(": "The page of the command line runs it.",
    "ottla txn describe orders-writer": "The page of the command line describes a transaction that exists.",
    "ottla txn abort": "It needs a transaction that hangs, which clients do not make.",
}
"""Lines within the blocks of `SHORT_BLOCKS` that do not run there, by how they begin."""
