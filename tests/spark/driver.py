"""A driver of its own, to be killed: copies a topic in small batches, exactly once, by the plain sink or the helper.

    python -m tests.spark.driver <bootstrap> <source> <sink> <checkpoint> plain|helper <group>
"""

import sys

import ottla.spark
from tests.spark.conftest import SETTINGS

BATCH = 200


def main(bootstrap: str, source: str, sink: str, checkpoint: str, kind: str, group: str) -> None:
    """Ends when everything that was there at its start has been copied."""
    spark = ottla.spark.session("driver", master="local[2]", config=SETTINGS)
    options = {"kafka.bootstrap.servers": bootstrap}
    reading = {**options, "subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(BATCH)}
    frame = spark.readStream.format("ottla").options(**reading).load().select("key", "value")
    if kind == "plain":
        writing = {**options, "topic": sink, "checkpointLocation": checkpoint}
        query = frame.writeStream.format("ottla").options(**writing).trigger(availableNow=True).start()
    else:
        query = ottla.spark.write_stream(
            frame, sink, checkpoint=checkpoint, options=options, trigger={"availableNow": True}, group=group
        )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
