"""CPU and memory of a Spark session: its JVM, the Python daemon and workers, and this process, the driver."""

import contextlib
import os
from pathlib import Path

import psutil
from pyspark.sql import SparkSession


class SparkProcesses:
    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._jvm = psutil.Process(gateway.proc.pid)
        self._spent: dict[int, float] = {}
        """CPU seconds of each process when it was last seen, so that processes which have ended count as well."""

    def cpu_seconds(self) -> float:
        """CPU seconds of the session so far. The broker is another process and does not count."""
        for process in (self._jvm, *self._children()):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._spent[process.pid] = sum(process.cpu_times()[:2])
        return sum(self._spent.values()) + sum(os.times()[:2])

    def read_largest_worker_mb(self) -> float:
        """Peak memory, in megabytes, of the largest Python process that is running. Linux only."""
        peaks = [0.0]
        for process in self._children():
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                fields = dict(line.split(":", 1) for line in lines)
                peaks.append(int(fields.get("VmHWM", "0").split()[0]) / 1000)  # missing when the process has just ended
        return max(peaks)

    def _children(self) -> list[psutil.Process]:
        return self._jvm.children(recursive=True)
