"""A log in this process beside SQLite and a plain file: python -m benchmarks.event_log [--records 100000]

All three append the same records of 100 bytes and read them back. No fsync is waited for: SQLite runs with a
write-ahead log and synchronous=OFF, because a record of a log survives a kill, not a power cut, unless it is flushed.
The plain file has only lengths and values: no keys, no index, no checksum. It is the floor, not a peer.
"""

import argparse
import sqlite3
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import ottla.log
from benchmarks.report import describe_machine

VALUE = b"x" * 100
BATCH = 1000
_LENGTH = struct.Struct(">I")


class Store(Protocol):
    def append(self, value: bytes) -> None: ...
    def append_many(self, values: list[bytes]) -> None: ...
    def read(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class OttlaStore:
    def __init__(self, directory: Path) -> None:
        self._log = ottla.log.open(directory / "ottla")
        self._topic = self._log.topic("records")

    def append(self, value: bytes) -> None:
        self._topic.append(value)

    def append_many(self, values: list[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        self._topic.append_many([(None, value, (), now_ms) for value in values])

    def read(self) -> Iterator[bytes]:
        return (record.value or b"" for record in self._topic.read())

    def close(self) -> None:
        self._log.close()


class SqliteStore:
    def __init__(self, directory: Path) -> None:
        self._database = sqlite3.connect(directory / "log.sqlite", isolation_level=None)
        self._database.execute("pragma journal_mode=wal")
        self._database.execute("pragma synchronous=off")
        self._database.execute("create table records (position integer primary key, time integer, value blob)")

    def append(self, value: bytes) -> None:
        self._database.execute("insert into records (time, value) values (?, ?)", (int(time.time() * 1000), value))

    def append_many(self, values: list[bytes]) -> None:
        now_ms = int(time.time() * 1000)
        self._database.execute("begin")
        self._database.executemany(
            "insert into records (time, value) values (?, ?)", [(now_ms, each) for each in values]
        )
        self._database.execute("commit")

    def read(self) -> Iterator[bytes]:
        return (value for _, _, value in self._database.execute("select position, time, value from records order by 1"))

    def close(self) -> None:
        self._database.close()


class FileStore:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "plain"
        self._file = self._path.open("ab", buffering=0)

    def append(self, value: bytes) -> None:
        self._file.write(_LENGTH.pack(len(value)) + value)

    def append_many(self, values: list[bytes]) -> None:
        self._file.write(b"".join(_LENGTH.pack(len(value)) + value for value in values))

    def read(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while length := file.read(_LENGTH.size):
                yield file.read(_LENGTH.unpack(length)[0])

    def close(self) -> None:
        self._file.close()


STORES: dict[str, Callable[[Path], Store]] = {"ottla.log": OttlaStore, "sqlite": SqliteStore, "plain file": FileStore}


def measure(make: Callable[[Path], Store], records: int) -> tuple[float, float, float]:
    """Records per second: appended one by one, appended in batches, read."""
    single = records // 10
    with tempfile.TemporaryDirectory() as directory:
        store = make(Path(directory))
        begin = time.perf_counter()
        for _ in range(single):
            store.append(VALUE)
        one_by_one = single / (time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(records // BATCH):
            store.append_many([VALUE] * BATCH)
        in_batches = records // BATCH * BATCH / (time.perf_counter() - begin)
        begin = time.perf_counter()
        found = sum(1 for _ in store.read())
        reading = found / (time.perf_counter() - begin)
        store.close()
        if found != single + records // BATCH * BATCH:
            raise SystemExit(f"{make.__name__}: {found} records were read back")
    return one_by_one, in_batches, reading


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    arguments = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    print(f"{'records per second':<20} {'one by one':>12} {'batches':>12} {'read':>12}")
    for name, make in STORES.items():
        print(f"{name:<20} " + " ".join(f"{rate:>12,.0f}" for rate in measure(make, arguments.records)))


if __name__ == "__main__":
    main()
