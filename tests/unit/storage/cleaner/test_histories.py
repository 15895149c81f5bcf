"""Random histories of a compacted log beside a naive model of it: readers of both kinds see what the model says."""

from random import Random

import pytest

from ottla.storage.log import Log
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.cleaner.compactions import SETTINGS, compact, end_transaction, pairs, stored
from tests.unit.storage.logs import NOW, append, new_log, open_log

HISTORIES = 60
KEYS = [f"key {number}" for number in range(8)]
PRODUCERS = (3, 4)
RETENTION_MS = 1000

Entry = tuple[str, str | None]


class Model:
    """Every record that was ever written, by offset, and what became of its transaction."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.owners: dict[int, int] = {}
        """Offset -> producer, while its transaction is open."""
        self.aborted: set[int] = set()

    def latest(self, up_to: int) -> dict[str, tuple[int, str | None]]:
        """The last committed record of each key, deleted keys left out."""
        found: dict[str, tuple[int, str | None]] = {}
        for offset, (key, value) in sorted(self.entries.items()):
            if offset < up_to and offset not in self.aborted:
                found[key] = (offset, value)
        return {key: entry for key, entry in found.items() if entry[1] is not None}


class History:
    def __init__(self, disk: SimulatedDisk, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.log = new_log(disk, SETTINGS)
        self.model = Model()
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, int] = {}
        self.now_ms = NOW
        self.durable = 0

    def live(self, steps: int) -> None:
        actions = [self.write] * 8 + [self.write_in_transaction] * 4 + [self.end] * 3 + [self.compact] * 3
        actions += [self.wait, self.restart, self.roll]
        for _ in range(steps):
            self.random.choice(actions)()
            self.check()

    def entries(self) -> list[Entry]:
        return [
            (self.random.choice(KEYS), None if self.random.random() < 0.2 else f"{self.random.getrandbits(30)}")
            for _ in range(self.random.randint(1, 5))
        ]

    def write(self) -> None:
        entries = self.entries()
        producer = self.random.choice((-1, *(one for one in PRODUCERS if one not in self.open)))
        sequence = self.sequences[producer] if producer >= 0 else -1
        data = pairs(*entries, codec=self.random.choice((0, 0, 1, 4)), producer_id=producer, sequence=sequence)
        self.note(entries, producer)
        append(self.log, data)

    def write_in_transaction(self) -> None:
        entries, producer = self.entries(), self.random.choice(PRODUCERS)
        data = pairs(*entries, producer_id=producer, sequence=self.sequences[producer], transactional=True)
        first = self.note(entries, producer)
        self.open.setdefault(producer, first)
        for offset in range(first, first + len(entries)):
            self.model.owners[offset] = producer
        append(self.log, data)

    def note(self, entries: list[Entry], producer: int) -> int:
        first = self.log.end_offset
        self.model.entries.update(enumerate(entries, first))
        if producer >= 0:
            self.sequences[producer] += len(entries)
        return first

    def end(self) -> None:
        if not self.open:
            return
        producer = self.random.choice(sorted(self.open))
        commit = self.random.random() < 0.5
        end_transaction(self.log, producer, commit=commit, timestamp=self.now_ms)
        del self.open[producer]
        offsets = [offset for offset, owner in self.model.owners.items() if owner == producer]
        for offset in offsets:
            del self.model.owners[offset]
        if not commit:
            self.model.aborted.update(offsets)

    def compact(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()
        self.durable = self.log.end_offset
        stable = self.log.last_stable_offset(self.log.end_offset)
        if len(self.log.segments) > 1 and stable >= self.log.segments[1].base_offset:
            compact(
                self.disk, self.log, now_ms=self.now_ms, delete_retention_ms=RETENTION_MS, roll=False,
                map_bytes=self.random.choice((24 * 5, 1 << 16)), segment_bytes=self.random.choice((600, 5000)),
            )  # fmt: skip

    def wait(self) -> None:
        self.now_ms += self.random.choice((1, RETENTION_MS + 1))

    def roll(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush()

    def restart(self) -> None:
        dirty = self.log.first_dirty_offset
        end = self.log.end_offset
        if self.random.random() < 0.5:
            self.log.close()
            self.log = open_log(self.disk, SETTINGS, clean=True)
        else:
            self.disk.crash(lose_unsynced=False)
            self.log = open_log(self.disk, SETTINGS, recovery_point=self.random.choice((0, self.log.recovery_point)))
        self.log.first_dirty_offset = dirty
        assert self.log.end_offset == end

    def check(self) -> None:
        """Every record is one that was written; the last one of each key is there for whoever reads committed."""
        log, model = self.log, self.model
        aborted = log.aborted_transactions(0, log.end_offset)
        stable = log.last_stable_offset(log.end_offset)
        assert stable == min((offset for offset in self.open.values()), default=log.end_offset)
        seen: dict[str, tuple[int, str | None]] = {}
        previous = -1
        for header, records in stored(log):
            assert header.base_offset > previous
            previous = header.last_offset
            if header.is_control:
                continue
            hidden = header.is_transactional and any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            for record in records:
                entry = ((record.key or b"").decode(), None if record.value is None else record.value.decode())
                assert model.entries[record.offset] == entry
                assert hidden == (record.offset in model.aborted), record
                if not hidden and record.offset < stable:
                    seen[entry[0]] = (record.offset, entry[1])
        assert {key: entry for key, entry in seen.items() if entry[1] is not None} == model.latest(stable)


def test_readers_see_what_the_model_says() -> None:
    for seed in range(HISTORIES):
        random = Random(seed)
        history = History(SimulatedDisk(random), random)
        try:
            history.live(50)
        except AssertionError as error:
            raise AssertionError(f"history {seed}") from error


def test_producers_go_on_where_they_were() -> None:
    # After any history and a restart that reads the log alone, the next sequence is the next one, no other.
    for seed in range(HISTORIES // 3):
        random = Random(1000 + seed)
        history = History(SimulatedDisk(random), random)
        history.live(40)
        history.restart()
        for producer in PRODUCERS:
            if producer not in history.open:
                data = pairs(("k", "v"), producer_id=producer, sequence=history.sequences[producer])
                assert not append(history.log, data).duplicate, seed
                assert append(history.log, data).duplicate, seed


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_anywhere_in_a_history_loses_nothing_that_was_flushed(power_cut: bool) -> None:
    for seed in range(HISTORIES):
        random = Random(2000 + seed)
        disk = SimulatedDisk(random)
        history = History(disk, random)
        history.live(20)
        history.log.flush()
        history.durable, dirty = history.log.end_offset, history.log.first_dirty_offset
        disk.crash_at(disk.operations + random.randint(1, 60))
        with pytest.raises(Crashed):
            while True:
                random.choice((history.compact, history.compact, history.write, history.wait))()
        disk.crash(lose_unsynced=power_cut)
        log: Log = open_log(disk, SETTINGS, recovery_point=history.durable)
        assert log.end_offset >= history.durable, seed
        there = {record.offset for _, records in stored(log) for record in records}
        for offset in [offset for offset in history.model.entries if offset >= history.durable]:
            if (power_cut and offset not in there) or offset >= log.end_offset:
                del history.model.entries[offset]
        history.log = log
        log.first_dirty_offset = min(dirty, log.end_offset)
        history.check()
