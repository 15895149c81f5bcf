"""The Spark session of a worker, which all its connectors share."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.spark.jobs import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON: Final = {"spark.python.daemon.module": "ottla.connect.running.daemon"}


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    """The JVM takes its classes from an archive and compiles less, as that of an app of Streams does."""
    import ottla.spark
    from ottla.spark.quick_start import make_java_options

    java = {"spark.driver.extraJavaOptions": make_java_options(os.environ)}
    return ottla.spark.session(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **java, **(config or {})})
