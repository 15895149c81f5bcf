"""The SparkContext of a worker, which all its connectors share.

There is no Spark session: tasks of connectors are Python functions, and a worker needs nothing of Spark's SQL."""

import os
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from ottla.pipeline.pandas_later import PYSPARK_TESTING, load_pandas_later
from ottla.spark.jobs import SESSION_SETTINGS
from ottla.spark.quick_start import make_java_options, warm_up

if TYPE_CHECKING:
    from pyspark import SparkContext

MASTER: Final = "local[*]"
DAEMON: Final = {"spark.python.daemon.module": "ottla.connect.running.daemon"}

SMALL_JVM: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms32m -Xmn8m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
)
"""No row comes through the JVM: it hands orders to Python workers and takes their reports. So the second compiler, a
heap that grows beyond need and threads for its collection are not worth what they cost. Seen on a busy machine: 5.6
instead of 8.6 s of CPU until the first row, and 315 instead of 341 MB. A young generation of 8 MB saves 10 MB and no
CPU more."""
REMEMBERED: Final = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
}
"""Spark remembers a thousand jobs and a hundred thousand tasks for a user interface that is switched off."""


def create_context(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkContext":
    """The JVM takes its classes from an archive and compiles less, as that of an app of Streams does."""
    load_pandas_later(PYSPARK_TESTING)
    from ottla.spark.sessions import context

    java = {"spark.driver.extraJavaOptions": f"{make_java_options(os.environ, 'connect')} {SMALL_JVM}"}
    settings = {**SESSION_SETTINGS, **DAEMON, **REMEMBERED, **java}
    return context(name, master=master, config={**settings, **(config or {})})


class SharedContext:
    """Makes one SparkContext for all connectors of a worker, whoever asks first."""

    def __init__(self, name: str, properties: Mapping[str, str], made: "SparkContext | None" = None) -> None:
        """The properties are those of the worker: `spark.master`, and whatever else begins with `spark.`."""
        self._name = name
        self._master = properties.get("spark.master") or MASTER
        self._config = {
            name: text for name, text in properties.items() if name.startswith("spark.") and name != "spark.master"
        }
        self._lock = Lock()
        self._made = made
        self._is_wanted = False

    def get(self) -> "SparkContext":
        """Waits until it is there."""
        self._is_wanted = True
        return self._make()

    def _make(self) -> "SparkContext":
        with self._lock:
            if self._made is None:
                self._made = create_context(self._name, self._master, self._config)
            return self._made

    def begin(self) -> None:
        """Make it in a thread, if it is not there: a JVM takes seconds to start, and the worker has other things to do
        meanwhile. If no connector waits for it, a first job starts Python too, so that the first connector need not
        wait for that. What goes wrong is told to the first connector, which tries again."""

        def make() -> None:
            with suppress(Exception):
                made = self._make()
                if not self._is_wanted:
                    warm_up(made)

        if self._made is None:
            Thread(target=make, name="start of Spark", daemon=True).start()
