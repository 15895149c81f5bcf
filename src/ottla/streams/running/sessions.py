"""The Spark session of an app: settings for many small jobs.

Spark connects the JVM and its Python workers by TCP unless told otherwise. The JVM sends the head of a job's data in
two small packets, and the second one waits 40 ms for the acknowledgement of the first (Nagle's algorithm against
delayed acknowledgements). A Unix socket has neither: an empty job takes 25 ms instead of 70.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "ottla.streams.running.daemon",
    "spark.sql.adaptive.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
}
"""No stage has an exchange, so adaptive execution only costs time. Jobs of all subtopologies share the cores fairly. A
task is never run again by Spark: whether that is right only the driver knows."""


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    import ottla.spark

    return ottla.spark.session(name, master=master, config={**SETTINGS, **(config or {})})
