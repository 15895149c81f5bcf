"""Random histories of one log, each ended by a crash: what survives is what was promised."""

from random import Random

import pytest

from ottla.storage.log import LogSettings
from tests.simulation.disk import Crashed, SimulatedDisk
from tests.unit.storage.logs import DIRECTORY, append, batch_of, new_log, open_log, records
from tests.unit.storage.truncating import truncate_to

SETTINGS = LogSettings(segment_bytes=500, index_interval_bytes=150)
PRODUCER = 8
HISTORIES = 100


class History:
    """A log and its possible content: `values` from offset 0 on. Up to `appended` they survive the end of the process,
    up to `durable` a power cut."""

    def __init__(self, disk: SimulatedDisk, random: Random) -> None:
        self.disk = disk
        self.random = random
        self.log = new_log(disk, SETTINGS)
        self.values: list[bytes] = []
        self.bases: list[int] = []
        self.appended = self.durable = 0
        self.start = 0

    def live(self) -> None:
        while True:
            self.random.choice([self.write] * 12 + [self.flush] * 3 + [self.cut, self.drop, self.restart])()

    def write(self) -> None:
        values = [b"%d" % self.random.getrandbits(30) for _ in range(self.random.randint(1, 4))]
        first = len(self.values)
        # If the process dies here, the batch is in the log or not, but complete and at this offset.
        self.values += values
        self.bases.append(first)
        append(self.log, batch_of(*values, producer_id=PRODUCER, sequence=first), leader_epoch=first // 20)
        self.appended = self.log.end_offset

    def flush(self) -> None:
        self.log.flush()
        self.durable = self.log.recovery_point

    def cut(self) -> None:
        if self.log.end_offset > self.start:
            offset = self.random.randint(self.start, self.log.end_offset - 1)
            base = max(base for base in self.bases if base <= offset)
            self.durable, self.appended = min(self.durable, base), base
            truncate_to(self.log, offset)
            assert self.log.end_offset == base
            del self.values[base:]
            self.bases = [kept for kept in self.bases if kept < base]
            self.start = min(self.start, base)

    def drop(self) -> None:
        self.start = self.random.randint(self.start, self.log.end_offset)
        self.log.advance_log_start(self.start)
        self.log.drop_segments(self.start)
        if self.random.random() < 0.5:
            self.log.files.take_deleted().run()

    def restart(self) -> None:
        self.log.close()
        self.durable = self.log.end_offset
        self.log = open_log(self.disk, SETTINGS, clean=True, log_start_offset=self.start)
        assert [record.value for record in records(self.log)] == self.values[self.start :]


@pytest.mark.parametrize("power_cut", [False, True])
def test_after_any_history_a_crash_leaves_what_was_promised(power_cut: bool) -> None:
    # The log has a prefix of what was written, with all flushed records (or all appended ones, if only the process
    # died). Epochs and the producer match it, and no truncated record comes back.
    for seed in range(HISTORIES):
        random = Random(seed)
        disk = SimulatedDisk(random)
        history = History(disk, random)
        disk.crash_at(disk.operations + random.randint(1, 400))
        with pytest.raises(Crashed):
            history.live()
        disk.crash(lose_unsynced=power_cut)
        if not disk.exists(DIRECTORY):
            assert power_cut and history.durable == 0, seed  # nothing was flushed: the directory itself may be gone
            continue
        log = open_log(disk, SETTINGS, recovery_point=history.durable, log_start_offset=history.start)
        promised = history.durable if power_cut else history.appended
        found = [record.value for record in records(log)]
        assert found == history.values[log.log_start_offset : log.end_offset], seed
        assert log.end_offset >= promised, seed
        assert log.end_offset in (*history.bases, len(history.values)) or not found, seed
        expected = {base // 20: base for base in reversed(history.bases) if base < log.end_offset}
        assert dict(log.epochs.entries).items() >= {
            (epoch, base) for epoch, base in expected.items() if base > log.log_start_offset
        }, seed
        following = log.end_offset
        data = batch_of(b"next", producer_id=PRODUCER, sequence=following)
        assert append(log, data, leader_epoch=following // 20).base_offset == following, seed
        assert append(log, data, leader_epoch=following // 20).is_duplicate, seed
