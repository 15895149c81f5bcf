"""The base install has neither numba nor numpy nor Arrow: broker, compaction, command line and `ottla.log` do without.

The modules are hidden from child processes by others of the same names that cannot be imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.storage.cleaner.compaction import choose_kernels
from ottla.storage.cleaner.kernels import compiled_kernels, python_kernels
from ottla.storage.cleaner.order import CompactionOrder

ROOT = Path(__file__).parents[2]
EXTRAS = ("llvmlite", "numba", "numpy", "orjson", "pandas", "pyarrow", "pyspark", "rocksdict")

PROGRAM = """
import subprocess, sys
import ottla.log, ottla.testing
from confluent_kafka import Producer

def run(*arguments):
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

with ottla.log.open("events") as log:
    log.topic("t").append_many([(b"k", b"v", (), 1)] * 3)
    assert len(list(log.topic("t").read())) == 3
with ottla.testing.broker(process=True) as broker:
    bootstrap = ("-b", broker.bootstrap)
    run("topic", "create", "orders", *bootstrap, "--partitions", "1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for each in range(12_000):
        producer.produce("orders", b"%d" % each, key=b"%d" % (each % 7), partition=0)
        producer.poll(0)
    assert producer.flush() == 0
    assert "orders" in run("topic", "list", *bootstrap)
    assert "12000" in run("topic", "describe", "orders", *bootstrap)
    assert len(run("consume", "orders", *bootstrap).split()) == 12_000
print("done")
"""


def test_broker_and_command_line_work_without_the_extras(tmp_path: Path) -> None:
    for name in EXTRAS:
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is hidden')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.stdout == "done\n", ended.stderr


def test_compaction_does_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    order = CompactionOrder("/log", (), 0, 0, 0, 1 << 30, 1 << 20, 4096)
    compiled_kernels.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert choose_kernels(order) is python_kernels()
    monkeypatch.undo()
    assert choose_kernels(order) is compiled_kernels()
