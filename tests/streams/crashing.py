"""An app that a test kills: it counts words by key in small batches and runs until it is killed.

python -m tests.streams.crashing <bootstrap> <directory>
"""

import sys

from ottla.streams.app import App

APP, SOURCE, SINK, STORE = "counter", "numbered", "totals", "per-bucket"
BATCH_ROWS = 20


def make_counter(bootstrap: str, directory: str) -> App:
    """Counts records by a key that is made from the value, so rows pass an exchange."""
    from pyspark.sql import functions as F

    app = App(APP, bootstrap=bootstrap, master="local[2]", state_dir=directory, batch_rows=BATCH_ROWS, interval_ms=0)
    numbers = app.stream(SOURCE, value="string")
    numbers.select((F.col("value").cast("long") % 11).cast("string").alias("bucket")).group_by("bucket").count(
        name=STORE
    ).to(SINK)
    return app


if __name__ == "__main__":
    make_counter(*sys.argv[1:]).run()
