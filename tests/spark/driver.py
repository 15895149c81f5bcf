"""A Spark driver that tests kill: it reads a topic in small batches and writes another, exactly once, and never ends.

    python -m tests.spark.driver <bootstrap> <source> <sink> <checkpoint> <kind> <group> <master>

Kinds: `plain` copies with the plain sink; `append` copies, and `update` and `complete` count by key, with the helper.
"""

import sys

import ottla.spark
from tests.spark.settings import QUICK_JAVA, SETTINGS

BATCH = 100
SETTINGS_HERE = {
    **SETTINGS,
    "spark.task.maxFailures": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
}
"""Where executors may be lost, a failed task is tried again, as in every cluster."""

KINDS = ("plain", "append", "update", "complete")


def main(bootstrap: str, source: str, sink: str, checkpoint: str, kind: str, group: str, master: str) -> None:
    spark = ottla.spark.session("driver", master=master, config=SETTINGS_HERE)
    options = {"kafka.bootstrap.servers": bootstrap}
    reading = {**options, "subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH)}
    if kind == "plain":
        reading["kafka.group.id"] = group
    rows = spark.readStream.format("ottla").options(**reading).load().select("key", "value")
    if kind == "plain":
        writing = {**options, "topic": sink, "checkpointLocation": checkpoint}
        query = rows.writeStream.format("ottla").options(**writing).start()
    else:
        counts = rows.groupBy("key").count().selectExpr("key", "string(count) as value")
        query = ottla.spark.write_stream(
            rows if kind == "append" else counts, sink, checkpoint=checkpoint, mode=kind, options=options, group=group
        )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
