"""The Spark session of an app."""

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ottla.pipeline.pandas_later import load_pandas_later
from ottla.spark.jobs import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON = {"spark.python.daemon.module": "ottla.streams.running.daemon"}
DRIVER_MODULES: Final = ("ottla.streams.running.driver", "ottla.pipeline.kernels", "ottla.pipeline.encoding")
"""What the driver needs, with the machine code that reads and writes its registration."""


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    """The session, with the modules of the driver loaded: Python has time for that while the JVM starts."""
    import ottla.spark
    from ottla.spark.quick_start import make_java_options

    load_pandas_later()
    loading = threading.Thread(target=_load)
    loading.start()
    java = {"spark.driver.extraJavaOptions": make_java_options(os.environ, "streams")}
    found = ottla.spark.session(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **java, **(config or {})})
    loading.join()
    return found


def _load() -> None:
    for name in DRIVER_MODULES:
        import_module(name)
