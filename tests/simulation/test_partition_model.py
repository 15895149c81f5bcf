"""Whatever happens to a partition, in any order, its readers see what a plain list of all batches says.

A whole broker runs on a simulated machine. Hypothesis chooses what happens, and shrinks a history that fails.

    OTTLA_MODEL_EXAMPLES=1000     how many histories; `make model` sets it
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.cluster.topics import NewTopic, create_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch as batches
from ottla.replication.partition import Partition
from tests.samples import sample_size
from tests.simulation import partition_reader
from tests.simulation.disk import Crashed
from tests.simulation.history import Ending
from tests.simulation.loop import SimulatedLoop, cancel_rest
from tests.simulation.naive_partition import NaiveBatch, NaivePartition, NaiveRecord
from tests.simulation.world import Machine, World

EXAMPLES = int(os.environ.get("OTTLA_MODEL_EXAMPLES", sample_size(6, 100)))
STEPS = 30
TOPIC = "orders"
PRODUCERS = (3, 4)
HOUR_MS = 3_600_000
JUMPS_MS = (-HOUR_MS, HOUR_MS, 10 * 365 * 24 * HOUR_MS)
BROKER = {
    "node.id": "1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.cleaner.backoff.ms": str(10**15),  # only the rule compacts: two compactions at a time are not allowed
    "log.retention.check.interval.ms": "20000",
    "log.initial.task.delay.ms": "10000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
}

keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
values = st.one_of(st.none(), st.sampled_from([b"", b"short", b"x" * 200]))
ages_ms = st.sampled_from([0, 0, 0, 1, 5000, 2 * HOUR_MS, -1000])
entries = st.lists(st.tuples(keys, values, ages_ms), min_size=1, max_size=5)
codecs = st.sampled_from([0, 0, 1, 2, 3, 4])
producers = st.sampled_from(PRODUCERS)
endings = st.sampled_from([Ending.KILL, Ending.POWER_CUT])
topics = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
        "internal.segment.bytes": st.sampled_from(["400", "1500"]),
        "index.interval.bytes": st.sampled_from(["100", "4096"]),
        "retention.ms": st.sampled_from(["-1", "60000", "3600000"]),
        "retention.bytes": st.sampled_from(["-1", "1200"]),
        "delete.retention.ms": st.sampled_from(["0", "10000", "86400000"]),
        "min.cleanable.dirty.ratio": st.sampled_from(["0", "0.5"]),
        "flush.messages": st.sampled_from(["1", "4", str(2**63 - 1)]),
        "message.timestamp.type": st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    }
)

Entries = list[tuple[bytes, bytes | None, int]]


class Histories(RuleBasedStateMachine):
    """Runs one history on a broker and on the naive partition, and compares what their readers see."""

    @initialize(topic=topics, seed=st.integers(0, 2**32 - 1), map_bytes=st.sampled_from(["120", "1048576"]))
    def begin(self, topic: dict[str, str], seed: int, map_bytes: str) -> None:
        self.loop = SimulatedLoop()
        self.topic = topic
        self.naive = NaivePartition()
        self.coming: NaiveBatch | None = None
        """A batch that is being appended. If the process dies meanwhile, the batch may be in the log or not."""
        self.deleting = 0
        self.serial = 0
        self.jumped = False
        self.loop.run_until_complete(self._begin(seed, {**BROKER, "log.cleaner.dedupe.buffer.size": map_bytes}))

    async def _begin(self, seed: int, broker: dict[str, str]) -> None:
        self.world = World(seed)
        self.machine: Machine = self.world.add_machine("broker-1", broker)
        assert await self.machine.start()
        node = self.machine.process.broker.node  # type: ignore[union-attr]
        wanted = NewTopic(TOPIC, 1, configs=dict(self.topic))
        await node.metadata.change(lambda image: create_topic(image, wanted, node.config, node.random))
        self._begin_life()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.world.close()
            self.loop.run_until_complete(self._end())
            cancel_rest(self.loop)
            self.loop.close()

    async def _end(self) -> None:
        self.machine.crash(Ending.KILL)

    # The broker

    @property
    def partition(self) -> Partition:
        assert self.machine.process is not None
        return self.machine.process.broker.node.replicas.get(TOPIC, 0)

    @property
    def now_ms(self) -> int:
        return self.machine.clock.now_ms()

    def do(self, action: Callable[[], Awaitable[Any]], *, wait_s: float = 1.0) -> Any:
        """Run an action and wait until its consequences are over. If the process dies meanwhile, start it again."""
        return self.loop.run_until_complete(self._do(action, wait_s))

    async def _do(self, action: Callable[[], Awaitable[Any]], wait_s: float) -> Any:
        async def acting() -> Any:
            result = await action()
            await asyncio.sleep(wait_s)
            return result

        acts = self.loop.create_task(acting(), name="action")
        dies = self.loop.create_task(self.machine.down.wait(), name="death")
        await asyncio.wait([acts, dies], return_when=asyncio.FIRST_COMPLETED)
        if self.machine.process is not None and not acts.done():  # the loop noticed the crash before the machine did
            await dies
        if acts.done() and not dies.done() and self.machine.process is not None:
            dies.cancel()
            self._check_own_work()
            return acts.result()
        acts.cancel()
        await asyncio.wait([acts, dies])
        if not acts.cancelled() and (error := acts.exception()) is not None and not isinstance(error, Crashed):
            assert isinstance(error, OSError | KafkaError), repr(error)
        await self._revive()
        return None

    async def _revive(self) -> None:
        while self.machine.process is None:
            await self.machine.down.wait()
            await self.machine.start()
        self._compare_after_crash()

    def _begin_life(self) -> None:
        self.born = self.loop.time(), self.now_ms

    def _check_own_work(self) -> None:
        """The broker is alive: check what it did by itself, and record it as durable."""
        log, naive = self.partition.log, self.naive
        naive.flushed = max(naive.flushed, min(log.recovery_point, naive.end))
        if self.topic["flush.messages"] == "1":
            assert self.partition.high_watermark.value == log.end_offset == log.recovery_point
        assert log.log_start_offset >= naive.start, f"the log begins at {log.log_start_offset}, not {naive.start}"
        self._check_start(log.log_start_offset)
        naive.start = log.log_start_offset
        naive.certain_start = max(naive.certain_start, self._written_start())
        if naive.flushed:
            naive.flushed = max(naive.flushed, naive.certain_start)

    def _written_start(self) -> int:
        """Where the log begins by its checkpoint, which retention writes after it has moved the beginning."""
        (directory,) = self._node.replicas.directories
        return int(directory.log_starts.get((TOPIC, 0), 0))

    def _compare_after_crash(self) -> None:
        """After a crash, check that nothing is lost that was promised, and cut the naive log to what is left."""
        log, naive = self.partition.log, self.naive
        cut = self.last_ending is Ending.POWER_CUT
        if cut and not naive.flushed and not log.end_offset:
            # Nothing was ever flushed, so the partition's directory is gone too.
            self.naive, self.coming, self.deleting = NaivePartition(), None, 0
            self._begin_life()
            return
        promised = naive.flushed if cut else naive.end
        assert log.end_offset >= promised, f"the log ends at {log.end_offset}, before {promised}"
        if self.coming is not None and log.end_offset > naive.end:
            naive.batches.append(self.coming)
        self.coming = None
        assert log.end_offset <= max(naive.end, self.deleting, naive.start)
        naive.cut(log.end_offset)
        certain = naive.certain_start
        assert log.log_start_offset >= certain, f"the log begins at {log.log_start_offset}, not {certain}"
        if not (cut and log.log_start_offset >= naive.flushed):
            self._check_start(log.log_start_offset)
        naive.start = log.log_start_offset
        self._begin_life()
        self._check_own_work()

    @property
    def last_ending(self) -> Ending:
        """The worst way in which the broker ended since the naive log was last compared."""
        ends = [event.ending for event in self.world.events if hasattr(event, "ending")]
        fresh, self.endings_seen = ends[self.endings_seen :], len(ends)
        return Ending.POWER_CUT if Ending.POWER_CUT in fresh else Ending.KILL

    endings_seen = 0

    def _check_start(self, start: int) -> None:
        """Check that records before the beginning were deleted on request, or are too old, or exceed the retention
        size."""
        if start <= max(self.deleting, self.naive.start):
            return
        assert "delete" in self.topic["cleanup.policy"], f"the log begins at {start}, and nobody deletes"
        assert start <= self.naive.stable, f"the log begins at {start}, after {self.naive.stable}"
        began, wall_ms = self.born
        steady_ms = min(self.now_ms, wall_ms + 2 * int((self.loop.time() - began) * 1000) + 1)
        retention_ms, retention_bytes = int(self.topic["retention.ms"]), int(self.topic["retention.bytes"])
        if 0 <= retention_bytes <= self.size_before:
            return
        assert retention_ms >= 0, f"the log begins at {start}, and nothing is old"
        # Retention judges a segment by the records that compaction has left in it.
        self.naive.compaction_runs(self.now_ms)
        is_compacted = "compact" in self.topic["cleanup.policy"]
        removable = self.naive.removable(int(self.topic["delete.retention.ms"])) if is_compacted else set[int]()
        for offset, record in self.naive.records().items():
            is_old = record.timestamp < steady_ms - retention_ms
            assert offset >= start or is_old or offset in removable, f"{record} was not old"

    @property
    def size_before(self) -> int:
        """An upper bound of the log's size before retention, counted from the batches: the dropped files are gone."""
        return sum(200 + sum(len(record.value or b"") for record in batch.records) for batch in self.naive.batches)

    # What happens

    def _append(self, chosen: Entries, codec: int, producer_id: int = -1, *, transactional: bool = False) -> None:
        naive, base = self.naive, self.naive.end
        sequence = naive.next_sequence(producer_id) if producer_id >= 0 else -1
        now_ms = self.now_ms
        written = []
        for key, value, age_ms in chosen:
            self.serial += 1
            own = None if value is None else b"%d %b" % (self.serial, value)
            written.append((key, own, (), now_ms - age_ms))
        data = batches.encode(
            written,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        stamped = self.topic["message.timestamp.type"] == "LogAppendTime"
        records = tuple(
            NaiveRecord(base + delta, now_ms if stamped else timestamp, key, value)
            for delta, (key, value, _, timestamp) in enumerate(written)
        )
        self._take(data, NaiveBatch(records, producer_id, sequence, transactional), now_ms)

    def _take(self, data: bytearray, batch: NaiveBatch, now_ms: int) -> None:
        async def appending() -> None:
            self.coming = batch
            appended = self.partition.append(memoryview(data), batches.read_header(data), now_ms, -1)
            assert appended.base_offset == batch.base_offset and not appended.is_duplicate
            self.coming = None
            self.naive.batches.append(batch)

        self.do(appending)

    @rule(chosen=entries, codec=codecs)
    def append(self, chosen: Entries, codec: int) -> None:
        self._append(chosen, codec)

    @rule(chosen=entries, codec=codecs, producer=producers)
    def append_as_producer(self, chosen: Entries, codec: int, producer: int) -> None:
        self._append(chosen, codec, producer, transactional=producer in self.naive.open_transactions())

    @rule(chosen=entries, codec=codecs, producer=producers)
    def append_in_transaction(self, chosen: Entries, codec: int, producer: int) -> None:
        self._append(chosen, codec, producer, transactional=True)

    @precondition(lambda self: self.naive.open_transactions())
    @rule(commits=st.booleans(), data=st.data())
    def end_transaction(self, commits: bool, data: st.DataObject) -> None:
        self._end_transaction(data.draw(st.sampled_from(sorted(self.naive.open_transactions()))), commits)

    def _end_transaction(self, producer: int, commits: bool) -> None:
        now_ms = self.now_ms
        marker = batches.encode_control(producer, 0, commits, 0, now_ms)
        record = NaiveRecord(self.naive.end, now_ms, None, None)
        self._take(marker, NaiveBatch((record,), producer, -1, True, commits), now_ms)

    @rule(producer=producers)
    def retry(self, producer: int) -> None:
        """A retry of a producer's last batch is not appended twice."""
        last = self.naive.last_batch(producer)
        if last is None or last.base_offset < self.naive.start or self.jumped:
            return
        if last.records[-1].timestamp < self.now_ms - HOUR_MS:
            return  # the producer may have expired
        data = batches.encode(
            [(record.key, record.value, (), record.timestamp) for record in last.records],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=last.sequence,
            transactional=last.transactional,
        )

        async def appending() -> None:
            appended = self.partition.append(memoryview(data), batches.read_header(data), self.now_ms, -1)
            assert appended.is_duplicate and appended.last_offset == last.end_offset - 1, appended

        self.do(appending)

    @rule()
    def roll(self) -> None:
        async def rolling() -> None:
            self.partition.log.roll(self.now_ms)

        self.do(rolling)

    @rule()
    def flush(self) -> None:
        async def flushing() -> None:
            self.partition.flushing.request()

        self.do(flushing)

    @rule()
    def expire(self) -> None:
        self.do(lambda: self._node.replication.upkeep.expire_segments())

    @rule()
    def compact(self) -> None:
        async def compacting() -> None:
            await self._node.compaction.run()  # this also flushes what it could not compact yet
            await asyncio.sleep(1)
            await self._node.compaction.run()

        self.do(compacting)

    @property
    def _node(self) -> Any:
        assert self.machine.process is not None
        return self.machine.process.broker.node

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        naive = self.naive
        offset = naive.start + int(part * (naive.stable - naive.start))
        if self.topic["cleanup.policy"] == "compact":
            return

        async def deleting() -> None:
            self.deleting = max(offset, naive.start)
            assert self.partition.delete_records(offset) >= self.deleting
            await self._node.replication.log_starts.write()
            naive.certain_start = self.deleting

        self.do(deleting)

    @rule()
    def delete_too_much(self) -> None:
        async def deleting() -> None:
            try:
                self.partition.delete_records(self.partition.high_watermark.value + 1)
            except KafkaError as error:
                assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
            else:
                raise AssertionError("records were deleted that nobody wrote")

        self.do(deleting)

    @rule(seconds=st.sampled_from([2, 30, 90]))
    def wait(self, seconds: int) -> None:
        """Let the broker do its background work."""
        self.do(lambda: asyncio.sleep(seconds))

    @rule(jump_ms=st.sampled_from(JUMPS_MS))
    def set_clock(self, jump_ms: int) -> None:
        self.jumped = True
        self.machine.clock.shift_ms += jump_ms

    @rule()
    def restart(self) -> None:
        self.do(self.machine.stop)

    @rule(ending=endings)
    def crash(self, ending: Ending) -> None:
        async def crashing() -> None:
            self.machine.crash(ending)

        self.do(crashing)

    @rule(ending=endings, operations=st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34, 55]))
    def crash_soon(self, ending: Ending, operations: int) -> None:
        """Crash in the middle of a later action."""
        self.machine.ending_next = ending
        self.machine.disk.crash_at(self.machine.disk.operations + operations)

    # What is seen

    @invariant()
    def readers_see_what_the_naive_partition_says(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.loop.run_until_complete(self._read())
        assert not self.world.surprises, self.world.surprises

    async def _read(self) -> None:
        partition, naive = self.partition, self.naive
        assert partition.high_watermark.value == partition.log.end_offset == naive.end
        assert partition.last_stable_offset == naive.stable
        compacted = "compact" in self.topic["cleanup.policy"]
        everything = partition_reader.read_all(partition, 300, read_committed=False)
        naive.compaction_runs(self.now_ms)
        naive.check(
            everything, partition.log.first_dirty_offset, int(self.topic["delete.retention.ms"]), compacted=compacted
        )
        aborted = naive.aborted()
        committed = {
            offset: record for offset, record in everything.items() if offset < naive.stable and offset not in aborted
        }
        assert partition_reader.read_all(partition, 1500, read_committed=True) == committed
        self._look_up_times(partition)

    def _look_up_times(self, partition: Partition) -> None:
        known = partition_reader.times(partition)
        for timestamp in sorted({timestamp + late for _, timestamp in known[::3] for late in (0, 1)}):
            first = next((offset for offset, time in known if time >= timestamp), None)
            found = partition.log.find_offset_for_timestamp(timestamp, partition.high_watermark.value)
            assert (found and found.offset) == first, f"at {timestamp}: {found} instead of {first}"
        largest = max((timestamp for _, timestamp in known), default=None)
        found = partition.log.find_max_timestamp()
        if found is None or found.offset >= partition.log.log_start_offset:
            assert (found and found.timestamp) == largest
        else:  # a deleted record whose segment is still there
            assert largest is None or found.timestamp >= largest


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def test_a_power_cut_takes_no_marker_of_compacted_records() -> None:
    # The marker is in the active segment, which nothing had flushed. The records of its transaction are compacted.
    history = Histories()
    topic = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0",
        "internal.segment.bytes": "400",
        "delete.retention.ms": "0",
        "message.timestamp.type": "CreateTime",
        "flush.messages": str(2**63 - 1),
    }
    history.begin(topic=topic, seed=1, map_bytes="1048576")
    history.append_in_transaction([(b"a", b"x" * 200, 0), (b"b", b"x" * 200, 0)], 0, PRODUCERS[0])
    history.append_in_transaction([(b"a", b"short", 0)], 0, PRODUCERS[0])
    history._end_transaction(PRODUCERS[0], commits=True)
    history.compact()
    assert history.partition.log.first_dirty_offset > 0
    history.crash(Ending.POWER_CUT)
    history.readers_see_what_the_naive_partition_says()
    assert history.naive.open_transactions() == {}
    history.teardown()
