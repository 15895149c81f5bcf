"""The SparkContext of an app, and the session on top of it for an app with Columns."""

import os
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from ottla.pipeline.pandas_later import PYSPARK_TESTING, load_pandas_later
from ottla.spark.jobs import SESSION_SETTINGS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

DAEMON = {"spark.python.daemon.module": "ottla.streams.running.daemon"}
DRIVER_MODULES: Final = ("ottla.streams.running.driver", "ottla.pipeline.kernels", "ottla.pipeline.encoding")
"""What the driver needs, with the machine code that reads and writes its registration."""


def create_context(name: str, master: str, config: Mapping[str, object]) -> "SparkContext":
    """The context, with the modules of the driver loaded: Python has time for that while the JVM starts."""
    load_pandas_later(PYSPARK_TESTING)
    from ottla.spark.quick_start import make_java_options
    from ottla.spark.sessions import context

    loading = threading.Thread(target=_load)
    loading.start()
    java = {"spark.driver.extraJavaOptions": make_java_options(os.environ, "streams")}
    found = context(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **java, **config})
    loading.join()
    return found


def create_session(name: str, master: str, config: Mapping[str, object]) -> "SparkSession":
    """The session on top of the context, which it has its settings from."""
    import ottla.spark

    return ottla.spark.session(name, master=master, config={**SESSION_SETTINGS, **DAEMON, **config})


def _load() -> None:
    for name in DRIVER_MODULES:
        import_module(name)
