"""The Spark session of a worker, which all its connectors share."""

import os
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from ottla.spark.jobs import SESSION_SETTINGS
from ottla.spark.quick_start import make_java_options, warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER: Final = "local[*]"
DAEMON: Final = {"spark.python.daemon.module": "ottla.connect.running.daemon"}

SMALL_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms32m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30"
"""No row comes through the JVM: it hands orders to Python workers and takes their reports. So the second compiler, a
heap that grows beyond need and threads for its collection are not worth what they cost. Seen on a busy machine: 5.6
instead of 8.6 s of CPU until the first row, and 315 instead of 341 MB."""
REMEMBERED: Final = {
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
"""Spark remembers a thousand jobs and a hundred thousand tasks for a user interface that is switched off."""


def create_session(name: str, master: str, config: Mapping[str, object] | None = None) -> "SparkSession":
    """The JVM takes its classes from an archive and compiles less, as that of an app of Streams does."""
    import ottla.spark

    java = {"spark.driver.extraJavaOptions": f"{make_java_options(os.environ)} {SMALL_JVM}"}
    settings = {**SESSION_SETTINGS, **DAEMON, **REMEMBERED, **java}
    return ottla.spark.session(name, master=master, config={**settings, **(config or {})})


class SharedSession:
    """Makes one session for all connectors of a worker, whoever asks first."""

    def __init__(self, name: str, properties: Mapping[str, str], made: "SparkSession | None" = None) -> None:
        """The properties are those of the worker: `spark.master`, and whatever else begins with `spark.`."""
        self._name = name
        self._master = properties.get("spark.master") or MASTER
        self._config = {
            name: text for name, text in properties.items() if name.startswith("spark.") and name != "spark.master"
        }
        self._lock = Lock()
        self._made = made
        self._is_wanted = False

    def get(self) -> "SparkSession":
        """Waits until it is there."""
        self._is_wanted = True
        return self._make()

    def _make(self) -> "SparkSession":
        with self._lock:
            if self._made is None:
                self._made = create_session(self._name, self._master, self._config)
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
            Thread(target=make, name="session of Spark", daemon=True).start()
