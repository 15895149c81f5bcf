"""Changes that wait for the metadata log: they share entries, have deadlines, and rest on nothing unwritten."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from ottla.cluster.changes import (
    Change,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    DeleteTopic,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    SetConfig,
    SetFeature,
    UnfenceBroker,
)
from ottla.cluster.changes import ConfigResource as Resource
from ottla.cluster.decision import Decision
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata, OutcomeUnknown
from ottla.cluster.metadata_log import Conflict, Entry, LogBehind, LogUnavailable, NotController
from ottla.errors import ErrorCode, KafkaError
from tests.simulation.loop import simulate
from tests.unit.cluster.cluster_members import count_up
from tests.unit.cluster.clusters import ENDPOINTS, TOPIC_ID, directory_of


class GatedLog:
    """A shared log in memory. `gate` holds appends back; `trouble` is raised instead of the next results."""

    is_shared = True
    obstacle = ""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.trouble: list[Exception] = []
        self.reads = 0
        self.read_trouble: Exception | None = None
        self.wants = False
        self.snapshot_gate = asyncio.Event()

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        await self.gate.wait()
        if self.trouble:
            raise self.trouble.pop(0)
        if expected_version != len(self.entries):
            raise Conflict
        return self.write(*changes, entry_id=entry_id)

    def write(self, *changes: Change, entry_id: bytes = b"") -> int:
        self.entries.append(Entry(len(self.entries) + 1, entry_id, changes))
        return len(self.entries)

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        self.reads += 1
        await asyncio.sleep(0.001)
        if self.read_trouble is not None:
            raise self.read_trouble
        return self.entries[after:]

    async def wait_for_growth(self, beyond: int) -> None:
        while len(self.entries) <= beyond:
            await asyncio.sleep(0.001)

    def wants_snapshot(self) -> bool:
        return self.wants

    async def save_snapshot(self, image: Image) -> None:
        await self.snapshot_gate.wait()


def create(name: str) -> Decision[str]:
    return Decision([CreateTopic(name.encode().ljust(16, b"."), name)], name)


def create_once(image: Image) -> Decision[str]:
    if image.topic("t") is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "t is there")
    return create("t")


def test_changes_that_wait_share_an_entry() -> None:
    """Each decider sees what the ones before it in the same entry did."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        work = [asyncio.create_task(metadata.change(count_up("n"))) for _ in range(50)]
        await asyncio.sleep(0.1)
        log.gate.set()
        assert await asyncio.gather(*work) == list(range(1, 51))
        assert len(log.entries) <= 2
        assert metadata.image.features["n"] == 50

    simulate(main())


def test_an_error_that_rests_on_an_unwritten_change_waits_for_it() -> None:
    """The second of two equal requests is refused only once the first is in the log, and succeeds if that failed."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.trouble = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")]
        log.gate.clear()
        other = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(0)
        works = [asyncio.create_task(metadata.change(create_once)) for _ in range(2)]
        await asyncio.sleep(1)
        assert not any(work.done() for work in works)
        log.gate.set()
        with pytest.raises(KafkaError, match="no room"):
            await other
        assert await works[0] == "t"
        with pytest.raises(KafkaError, match="t is there"):
            await works[1]

    simulate(main())


def test_a_change_that_cannot_be_replayed_spoils_no_other() -> None:
    """Only its own caller hears of it."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        first = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(0)
        bad = asyncio.create_task(metadata.change(lambda image: Decision([DeleteTopic(b"\x01" * 16)], None)))
        last = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(0)
        log.gate.set()
        assert [await first, await last] == [1, 2]
        with pytest.raises(ValueError, match="no topic has id"):
            await bad

    simulate(main())


def test_what_does_not_fit_one_entry_comes_in_the_next() -> None:
    """Three changes that are 200 KiB each after compression need two entries."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()

        def large(image: Image, key: str) -> Decision[None]:
            value = Random(key).randbytes(200 << 10).hex()  # compression halves it
            return Decision([SetConfig(Resource.BROKER, "", key, value)], None)

        work = [asyncio.create_task(metadata.change(lambda image, key=key: large(image, key))) for key in "abc"]  # type: ignore[misc]
        await asyncio.sleep(0)
        log.gate.set()
        await asyncio.gather(*work)
        assert [len(entry.changes) for entry in log.entries] in ([2, 1], [1, 2])

    simulate(main())


def test_a_refusal_is_not_given_on_an_old_image() -> None:
    """The topic was deleted by another broker: the log is read before the request is refused."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        await metadata.change(create_once)
        log.write(DeleteTopic(b"t".ljust(16, b".")))
        assert await metadata.change(create_once) == "t"

    simulate(main())


def test_the_log_is_away() -> None:
    """A change fails in its time; it was not made, and is not made later. Afterwards changes succeed by themselves."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.trouble = [LogUnavailable("nobody is there")] * 1000
        log.read_trouble = LogUnavailable("nobody is there")
        with pytest.raises(KafkaError, match=r"could not be changed within 5 s: nobody is there") as refusal:
            await metadata.change(count_up("n"), timeout_s=5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not isinstance(refusal.value, OutcomeUnknown)
        waiting = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(1)
        log.trouble, log.read_trouble = [], None
        assert await waiting == 1
        assert len(log.entries) == 1

    simulate(main())


def test_a_refusal_waits_for_a_log_that_is_away() -> None:
    """Another broker may have deleted the topic: what this one knows proves nothing."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        await metadata.change(create_once)
        log.read_trouble = LogUnavailable("nobody is there")
        with pytest.raises(KafkaError, match=r"could not be changed within 5 s: nobody is there") as refusal:
            await metadata.change(create_once, timeout_s=5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert log.reads < 1000, "it pauses between attempts"
        waiting = asyncio.create_task(metadata.change(create_once))
        await asyncio.sleep(1)
        log.write(DeleteTopic(b"t".ljust(16, b".")))
        log.read_trouble = None
        assert await waiting == "t"

    simulate(main())


def test_a_time_out_during_the_append_is_an_unknown_outcome() -> None:
    """The append goes on, and the change may be made after the caller was told."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        with pytest.raises(OutcomeUnknown) as refusal:
            await metadata.change(count_up("n"), timeout_s=1)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        log.gate.set()
        await metadata.wait_for_version(1)
        assert metadata.image.features["n"] == 1

    simulate(main())


def test_a_change_behind_an_append_that_hangs_names_the_reason() -> None:
    """As when ZooKeeper is paused: the append waits for its outcome, so no change is refused with a reason."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        first = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(1)
        log.obstacle = "nobody is there"
        with pytest.raises(KafkaError, match=r"could not be changed within 5 s: nobody is there"):
            await metadata.change(count_up("n"), timeout_s=5)
        log.gate.set()
        assert await first == 1

    simulate(main())


def test_a_caller_that_goes_away_takes_only_its_own_change_along() -> None:
    """An append that is under way is finished for the others."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        first = asyncio.create_task(metadata.change(count_up("a")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(metadata.change(count_up("b")))
        third = asyncio.create_task(metadata.change(count_up("c")))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        log.gate.set()
        assert await third == 1
        assert dict(metadata.image.features) == {"a": 1, "c": 1}

    simulate(main())


def test_the_controller_is_told_that_it_is_none() -> None:
    """Its change is refused; those of others in the queue are made."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.trouble = [NotController("another one was elected")]
        controller = asyncio.create_task(metadata.change(count_up("a"), as_controller=True))
        plain = asyncio.create_task(metadata.change(count_up("b")))
        assert await plain == 1
        with pytest.raises(KafkaError) as refusal:
            await controller
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert dict(metadata.image.features) == {"b": 1}

    simulate(main())


def test_snapshots_hold_up_no_change() -> None:
    """A snapshot that takes long does not keep changes waiting, and only one is written at a time."""

    async def main() -> None:
        log = GatedLog()
        log.wants = True
        metadata = Metadata(log, Random(1))
        for level in range(1, 4):
            assert await metadata.change(count_up("n")) == level

    simulate(main())


def test_a_listener_that_fails_is_reported() -> None:
    """The broker must stop: a part of it does not know of an entry that is in force."""

    async def main() -> None:
        reasons: list[str] = []
        metadata = Metadata(GatedLog(), Random(1), on_failure=reasons.append)

        def fail(before: Image, after: Image, changes: Sequence[Change]) -> None:
            raise RuntimeError("no room on disk")

        metadata.on_change(fail)
        with pytest.raises(RuntimeError):
            await metadata.change(count_up("n"))
        assert reasons == ["metadata entry 1 could not be applied: RuntimeError('no room on disk')"]

    simulate(main())


def test_an_entry_that_cannot_be_replayed_is_reported() -> None:
    """So is one after a gap."""

    async def main() -> None:
        log = GatedLog()
        reasons: list[str] = []
        metadata = Metadata(log, Random(1), on_failure=reasons.append)
        log.write(DeleteTopic(b"\x01" * 16))
        with pytest.raises(ValueError, match="no topic has id"):
            await metadata.refresh()
        assert len(reasons) == 1
        assert "no topic has id" in reasons[0]

    simulate(main())


def test_elections_are_counted_with_the_time_that_they_took() -> None:
    """An entry that gives a partition another leader counts, however many it moves; other entries do not."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))

        async def write(*changes: Change) -> None:
            await metadata.change(lambda image: Decision(changes, None))

        for broker_id in (1, 2):
            await write(RegisterBroker(broker_id, (directory_of(broker_id),), ENDPOINTS))
            await write(UnfenceBroker(broker_id, metadata.image.brokers[broker_id].epoch))
        partitions = [CreatePartition(TOPIC_ID, index, (1, 2), (1, 2), 1) for index in range(3)]
        await write(CreateTopic(TOPIC_ID, "orders"), *partitions)
        await write(ChangePartition(TOPIC_ID, 0, 0, isr=(1,)))
        assert sum(metadata.elections.counts) == 0
        log.gate.clear()
        fencing = asyncio.create_task(write(FenceBroker(1, metadata.image.brokers[1].epoch)))
        await asyncio.sleep(2)
        log.gate.set()
        await fencing
        leaders = [metadata.image.partition("orders", index) for index in range(3)]
        assert [state.leader for state in leaders if state is not None] == [-1, 2, 2]
        assert sum(metadata.elections.counts) == 1
        assert metadata.elections.seconds == pytest.approx(2, abs=0.1)
        await write(FenceBroker(2, metadata.image.brokers[2].epoch))
        assert sum(metadata.elections.counts) == 1, "nobody was elected"

    simulate(main())


def test_a_jump_to_a_snapshot_tells_which_topics_are_gone() -> None:
    """Listeners get the images on both sides, and a deletion for every topic that is gone."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        await metadata.change(lambda image: create("old"))
        heard: list[tuple[Image, Image, Sequence[Change]]] = []
        metadata.on_change(lambda before, after, changes: heard.append((before, after, changes)))
        log.entries.append(Entry(9, b"", (CreateTopic(b"\x02" * 16, "new"),), snapshot=True))
        await metadata.refresh()
        ((before, after, changes),) = heard
        assert (before.version, after.version) == (1, 9)
        assert changes == (DeleteTopic(b"old".ljust(16, b".")), CreateTopic(b"\x02" * 16, "new"))
        assert metadata.image.topic("old") is None

    simulate(main())


def test_a_snapshot_of_another_cluster_ends_the_broker() -> None:
    """The store was emptied, and other brokers began a new cluster in it. Nobody is told of its topics."""

    async def main() -> None:
        log = GatedLog()
        reasons: list[str] = []
        metadata = Metadata(log, Random(1), on_failure=reasons.append)
        await metadata.change(lambda image: Decision([SetClusterId("ours")], None))
        heard: list[Entry] = []
        metadata.on_entry(heard.append)
        log.entries.append(Entry(9, b"", (SetClusterId("theirs"),), snapshot=True))
        with pytest.raises(LogBehind, match=r"cluster theirs.*cluster ours"):
            await metadata.refresh()
        assert len(reasons) == 1 and "emptied" in reasons[0]
        assert metadata.image.cluster_id == "ours" and not heard
        log.entries[-1] = Entry(9, b"", (SetClusterId("ours"),), snapshot=True)
        await metadata.refresh()
        assert metadata.image.version == 9

    simulate(main())


def test_catching_up_reads_what_others_wrote_and_is_shared() -> None:
    """A hundred requests for an unknown topic cause a few reads; each sees what was written before it asked."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.write(SetFeature("n", 1))
        await asyncio.gather(*(metadata.catch_up() for _ in range(100)))
        assert metadata.image.features["n"] == 1
        assert log.reads == 1
        reading = asyncio.create_task(metadata.catch_up())
        await asyncio.sleep(0)
        log.write(SetFeature("n", 2))
        await metadata.catch_up()  # joins no read that began before
        assert metadata.image.features["n"] == 2
        await reading
        log.read_trouble = LogUnavailable("nobody is there")
        await metadata.catch_up(timeout_s=1)

    simulate(main())


def test_after_the_end_nothing_is_appended() -> None:
    """Who waits is refused, and so is who comes later."""

    async def main() -> None:
        log = GatedLog()
        metadata = Metadata(log, Random(1))
        log.gate.clear()
        waiting = asyncio.create_task(metadata.change(count_up("n")))
        await asyncio.sleep(0)
        metadata.close()
        with pytest.raises(KafkaError, match="the broker stops"):
            await waiting
        with pytest.raises(KafkaError, match="the broker stops"):
            await metadata.change(count_up("n"))
        log.gate.set()
        await asyncio.sleep(1)
        assert log.entries == []

    simulate(main())
