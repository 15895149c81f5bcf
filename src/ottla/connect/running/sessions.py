"""The Spark session of a worker, which all its connectors share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.spark.jobs import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON: Final = {"spark.python.daemon.module": "ottla.connect.running.daemon"}


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    import ottla.spark

    return ottla.spark.session(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **(config or {})})
