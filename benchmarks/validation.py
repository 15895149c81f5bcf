"""Microseconds to check every record of a batch: python -m benchmarks.validation

One batch of each shape, in this process, without a network. The columns: its checksum; the survey of its records by
machine code and by Python; the whole check that Produce makes of the records, which includes decompression; and an
append without that check, which is header, checksum and the write to the log. A connection adds about 40 us per request
and 500 us per megabyte.
"""

import tempfile
import time
from collections.abc import Callable
from random import Random

from crc32c import crc32c

from ottla.config import BrokerConfig, TopicConfig
from ottla.records import batch, columns
from ottla.records.compression import NAMES
from ottla.records.record import Fields
from ottla.replication.validation import Rules, validate
from ottla.storage.files import RealDisk
from ottla.storage.log import Log, LogSettings
from ottla.storage.opening import create_log

NOW_MS = 1_700_000_000_000
SECONDS_EACH = 0.3
WORDS = b"alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau".split()
SHAPES = (
    ("1 x 100 B", 1, 100, 0),
    ("160 x 100 B", 160, 100, 0),
    ("10,000 x 100 B", 10_000, 100, 0),
    ("1,000 x 1 KB", 1_000, 1_000, 0),
    ("100 x 10 KB", 100, 10_000, 0),
    *((f"10,000 x 100 B {NAMES[codec]}", 10_000, 100, codec) for codec in range(1, 5)),
)


def measure_microseconds(work: Callable[[], object]) -> float:
    """The fastest of as many runs as there is time for: other programs on the machine can only make a run slower."""
    best = float("inf")
    end = time.perf_counter() + SECONDS_EACH
    while (began := time.perf_counter()) < end:
        work()
        best = min(best, time.perf_counter() - began)
    return best * 1e6


def make_text(random: Random, size: int) -> bytes:
    return b" ".join(random.choice(WORDS) for _ in range(size // 4))[:size]


def make_batch(count: int, size: int, codec: int) -> bytearray:
    random = Random(1)
    records: list[Fields] = [
        (b"key", make_text(random, size - 12), (), NOW_MS + number // 10) for number in range(count)
    ]
    return batch.encode(records, codec=codec)


class Shape:
    """One batch, and the operations that are measured on it."""

    def __init__(self, log: Log, rules: Rules, name: str, count: int, size: int, codec: int) -> None:
        self.name = name
        self.data = memoryview(make_batch(count, size, codec))
        self.header = batch.check_client_batch(self.data)
        self._unpacked = memoryview(make_batch(count, size, codec=0))[batch.HEADER_SIZE :]
        self._bounds = rules.bounds(self.header.base_timestamp, NOW_MS)
        self._rules = rules
        self._log = log

    def checksum(self) -> int:
        return crc32c(self.data)

    def survey(self, surveyor: columns.Surveyor) -> columns.Survey:
        return surveyor(self._unpacked, self.header.record_count, self._bounds, columns.BEGIN)

    def check(self) -> object:
        rules = self._rules
        return validate(self.data, self.header, rules, NOW_MS, columns.compile_survey(), rules.unpacked_bytes_max)

    def append(self) -> object:
        batch.stamp(self.data, 0, 0)
        return self._log.append(self.data, batch.check_client_batch(self.data), 0, NOW_MS)

    def format_row(self) -> str:
        machine_code = columns.compile_survey()
        checksum = measure_microseconds(self.checksum)
        compiled = measure_microseconds(lambda: self.survey(machine_code))
        interpreted = measure_microseconds(lambda: self.survey(columns.survey))
        check, append = measure_microseconds(self.check), measure_microseconds(self.append)
        return (
            f"{self.name:24} {len(self.data):10,} {checksum:10.1f} {compiled:10.1f} {interpreted:10,.0f} "
            f"{check:10.1f} {append:10.1f}"
        )


def main() -> None:
    began = time.perf_counter()
    columns.compile_survey()
    print(f"machine code loaded in {time.perf_counter() - began:.2f} s; all times in microseconds\n")
    titles = ("bytes", "checksum", "survey", "by Python", "check", "append")
    print(f"{'batch':24}", *(f"{title:>10}" for title in titles))
    rules = Rules.of(TopicConfig.of({}, BrokerConfig.of({})))
    for name, count, size, codec in SHAPES:
        with tempfile.TemporaryDirectory(prefix="ottla-") as directory:
            log = create_log(RealDisk(), f"{directory}/sample-0", bytes(16), LogSettings(), NOW_MS)
            print(Shape(log, rules, name, count, size, codec).format_row(), flush=True)
            log.abandon()


if __name__ == "__main__":
    main()
