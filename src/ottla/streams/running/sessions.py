"""The Spark session of an app."""

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.spark.jobs import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON = {"spark.python.daemon.module": "ottla.streams.running.daemon"}


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    """The session, with the modules of the driver loaded: Python has time for that while the JVM starts."""
    import ottla.spark
    from ottla.spark.quick_start import make_java_options

    loading = threading.Thread(target=import_module, args=("ottla.streams.running.driver",))
    loading.start()
    java = {"spark.driver.extraJavaOptions": make_java_options(os.environ)}
    found = ottla.spark.session(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **java, **(config or {})})
    loading.join()
    return found
