"""An app on a Spark cluster that a test kills parts of: it counts words and joins them with a table, until it is told
to stop.

python -m tests.streams.clustered <bootstrap> <directory> <master>
"""

import sys
import time
from pathlib import Path

from ottla.streams.app import App
from tests.spark.driver import SETTINGS_HERE
from tests.streams.striking import EXECUTOR, make_striker

APP, LINES, KINDS, TOTALS, JOINED = "clustered", "cluster-lines", "cluster-kinds", "cluster-totals", "cluster-joined"
EXECUTORS = 2
BATCH_ROWS = 40


def make_app(bootstrap: str, directory: str, master: str) -> App:
    """Word count behind an exchange, and each word with its kind, a stream-table join behind another one."""
    from pyspark.sql import functions as F

    # Spark may not run a task of the app again, whatever the other settings are made for.
    config = {name: text for name, text in SETTINGS_HERE.items() if name != "spark.task.maxFailures"}
    app = App(
        APP,
        bootstrap=bootstrap,
        master=master,
        state_dir=directory,
        batch_rows=BATCH_ROWS,
        interval_ms=0,
        config=config,
    )
    lines = app.stream(LINES, value="string").select(F.explode(F.split("value", " ")).alias("word"))
    words = lines.peek(make_striker(Path(directory).parent, EXECUTOR))
    words.group_by("word").count(name="per-word").to(TOTALS)
    kinds = app.table(KINDS, key="string", key_column="word", value="kind string")
    words.select_key("word").join(kinds, name="with-kinds").to(JOINED)
    return app


def await_executors(app: App) -> None:
    """An app takes the executors that are there when it starts; the test wants both of them to have state."""
    status = app.spark_context._jsc.sc()
    while status.getExecutorMemoryStatus().size() < EXECUTORS + 1:
        time.sleep(0.1)


if __name__ == "__main__":
    app = make_app(*sys.argv[1:])
    await_executors(app)
    app.run()
