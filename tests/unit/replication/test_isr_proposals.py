"""ISR changes on their way into the metadata: merged, refused, or of unknown outcome."""

import asyncio
from collections.abc import Sequence
from random import Random

from ottla.cluster.changes import (
    Change,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    Endpoint,
    FenceBroker,
    RegisterBroker,
    SetClusterId,
    UnfenceBroker,
)
from ottla.cluster.image import EMPTY, Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.metadata_log import Conflict, Entry
from ottla.config import BrokerConfig
from ottla.replication.isr_proposals import IsrProposals
from ottla.replication.partition import Partition
from tests.simulation.loop import simulate
from tests.unit.replication.led_partition import LEADER, REPLICAS, SECOND, THIRD, TOPIC, TOPIC_ID, lead, produce


class Log:
    """A metadata log in memory. `stall` makes appends hang until it is set; they may then be in the log or not."""

    is_shared = True
    obstacle = ""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.stall: asyncio.Event | None = None
        self.delayed: list[tuple[int, bytes, Sequence[Change]]] = []
        """Appends whose writer has given up: they may still be applied."""

    async def append(
        self, expected_version: int, entry_id: bytes, changes: Sequence[Change], *, as_controller: bool = False
    ) -> int:
        if self.stall is not None:
            self.delayed.append((expected_version, entry_id, changes))
            await self.stall.wait()
        if expected_version != len(self.entries):
            raise Conflict
        self.entries.append(Entry(expected_version + 1, entry_id, tuple(changes)))
        return expected_version + 1

    async def read(self, after: int, *, newest: bool = True) -> Sequence[Entry]:
        return self.entries[after:]

    async def wait_for_growth(self, beyond: int) -> None:
        await asyncio.Event().wait()

    def wants_snapshot(self) -> bool:
        return False

    async def save_snapshot(self, image: Image) -> None:
        pass

    def write(self, *changes: Change) -> None:
        """An entry of another broker."""
        self.entries.append(Entry(len(self.entries) + 1, b"other", changes))


class Broker:
    """The part of a broker that leads `count` partitions, with the leader alone in their ISRs."""

    def __init__(self, count: int, isr: tuple[int, ...] = (LEADER,)) -> None:
        self.log = Log()
        self.metadata = Metadata(self.log, Random(1), EMPTY)
        self.count = count
        self.isr = isr
        self.partitions: list[Partition] = []
        self.proposals: IsrProposals
        self.settings = BrokerConfig.of({"replica.lag.time.max.ms": "30000"})

    async def start(self) -> None:
        self.log.write(SetClusterId("c"))
        epochs = {}
        for broker in REPLICAS:
            endpoint = Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT")
            self.log.write(RegisterBroker(broker, (bytes([broker]) * 16,), (endpoint,)))
            epochs[broker] = len(self.log.entries)
            self.log.write(UnfenceBroker(broker, epochs[broker]))
        created = [CreatePartition(TOPIC_ID, index, REPLICAS, self.isr, LEADER) for index in range(self.count)]
        self.log.write(CreateTopic(TOPIC_ID, TOPIC), *created)
        await self.metadata.load()
        self.proposals = IsrProposals(self.metadata, LEADER, lambda: epochs[LEADER], lambda: self.settings)
        self.epochs = epochs
        for index in range(self.count):
            partition = lead(self.proposals, self.metadata.image.partition(TOPIC, index), index)
            self.partitions.append(partition)
        self.metadata.on_change(self.apply)

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        for partition in self.partitions:
            state = after.partition(TOPIC, partition.index)
            assert state is not None
            partition.become(state)

    def fetch(self, broker: int, *indexes: int, epoch: int | None = None) -> None:
        """A follower fetches from the end of these partitions."""
        now = asyncio.get_running_loop().time()
        for index in indexes:
            partition = self.partitions[index]
            end = partition.log.end_offset
            partition.note_follower_fetch(broker, self.epochs[broker] if epoch is None else epoch, end, 0, now)

    def isr_of(self, index: int) -> list[int]:
        state = self.metadata.image.partition(TOPIC, index)
        assert state is not None and state == self.partitions[index].state
        return sorted(state.isr)

    def pending_of(self, index: int) -> list[int]:
        in_sync = self.partitions[index].in_sync
        assert in_sync is not None
        return sorted(in_sync.pending)

    @property
    def entries(self) -> int:
        return len(self.log.entries)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_follower_that_has_caught_up_joins() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        produce(broker.partitions[0], b"a")
        broker.fetch(SECOND, 0)
        assert broker.pending_of(0) == [] and broker.isr_of(0) == [LEADER]
        await settle()
        assert broker.isr_of(0) == [LEADER, SECOND] and broker.pending_of(0) == []
        assert (broker.proposals.expansions, broker.proposals.shrinks, broker.proposals.failures) == (1, 0, 0)

    simulate(scenario())


def test_a_follower_that_caught_up_while_it_was_fenced_joins_when_it_is_not() -> None:
    # It has everything, so it does not fetch in a way that would make the leader look at it again.
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.log.write(FenceBroker(SECOND, broker.epochs[SECOND]))
        await broker.metadata.refresh()
        broker.fetch(SECOND, 0)
        await settle()
        assert broker.isr_of(0) == [LEADER]
        broker.log.write(UnfenceBroker(SECOND, broker.epochs[SECOND]))
        await broker.metadata.refresh()
        await settle()
        assert broker.isr_of(0) == [LEADER, SECOND]

    simulate(scenario())


def test_a_follower_may_fetch_before_the_leader_knows_of_its_registration() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        epoch = broker.entries + 2
        broker.fetch(SECOND, 0, epoch=epoch)
        broker.log.write(UnfenceBroker(THIRD, broker.epochs[THIRD]))
        await broker.metadata.refresh()
        endpoint = Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT")
        broker.log.write(RegisterBroker(SECOND, (bytes([SECOND]) * 16,), (endpoint,)))
        broker.log.write(UnfenceBroker(SECOND, epoch))
        await broker.metadata.refresh()
        await asyncio.sleep(1)
        assert broker.isr_of(0) == [LEADER, SECOND]

    simulate(scenario())


def test_a_refused_proposal_is_repeated_while_it_is_wanted() -> None:
    # Another broker has changed the partition meanwhile, and the follower's next fetch is far away.
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.fetch(SECOND, 0)
        state = broker.partitions[0].state
        assert state is not None
        broker.log.write(ChangePartition(TOPIC_ID, 0, state.partition_epoch, isr=(LEADER, THIRD)))
        await settle()
        await asyncio.sleep(1)
        assert broker.isr_of(0) == [LEADER, SECOND, THIRD]
        assert broker.proposals.failures == 1

    simulate(scenario())


def test_changes_of_many_partitions_share_an_entry() -> None:
    async def scenario() -> None:
        broker = Broker(50)
        await broker.start()
        before = broker.entries
        broker.fetch(SECOND, *range(50))
        broker.fetch(THIRD, *range(50))
        await settle()
        assert broker.entries - before == 1
        assert all(broker.isr_of(index) == [LEADER, SECOND, THIRD] for index in range(50))

    simulate(scenario())


def test_one_append_is_in_flight_and_the_next_takes_what_came_meanwhile() -> None:
    async def scenario() -> None:
        broker = Broker(10)
        await broker.start()
        before = broker.entries
        broker.log.stall = asyncio.Event()
        broker.fetch(SECOND, 0)
        await settle()
        broker.fetch(SECOND, *range(1, 10))
        await settle()
        assert len(broker.log.delayed) == 1 and broker.pending_of(0) == [SECOND] and broker.pending_of(1) == []
        stall, broker.log.stall = broker.log.stall, None
        stall.set()
        await settle()
        assert broker.entries - before == 2
        assert all(broker.isr_of(index) == [LEADER, SECOND] for index in range(10))

    simulate(scenario())


def test_a_lagging_follower_leaves() -> None:
    async def scenario() -> None:
        broker = Broker(2, REPLICAS)
        await broker.start()
        broker.fetch(SECOND, 0, 1)
        broker.fetch(THIRD, 0, 1)
        produce(broker.partitions[0], b"a")
        await asyncio.sleep(31)
        broker.fetch(THIRD, 0)
        await broker.proposals.find_lagging(broker.partitions)
        await settle()
        assert broker.isr_of(0) == [LEADER, THIRD] and broker.isr_of(1) == [LEADER, SECOND, THIRD]
        assert broker.partitions[0].high_watermark.value == 1
        assert (broker.proposals.expansions, broker.proposals.shrinks, broker.proposals.failures) == (0, 1, 0)

    simulate(scenario())


def test_an_unknown_outcome_counts_as_both_until_it_is_known() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        partition = broker.partitions[0]
        stall = broker.log.stall = asyncio.Event()
        broker.fetch(SECOND, 0)
        await asyncio.sleep(100)
        assert broker.pending_of(0) == [SECOND]
        produce(partition, b"a")
        assert partition.high_watermark.value == 0, "the follower may be in the ISR already"
        # The entry was appended, but the answer got lost: the writer finds the version taken.
        ((expected, entry_id, changes),) = broker.log.delayed
        broker.log.entries.append(Entry(expected + 1, entry_id, tuple(changes)))
        broker.log.stall = None
        stall.set()
        await asyncio.sleep(1)
        assert broker.isr_of(0) == [LEADER, SECOND] and broker.pending_of(0) == []
        assert partition.high_watermark.value == 0
        broker.fetch(SECOND, 0)
        assert partition.high_watermark.value == 1

    simulate(scenario())


def test_an_append_that_lost_against_another_entry_counts_no_more() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        partition = broker.partitions[0]
        stall = broker.log.stall = asyncio.Event()
        broker.fetch(SECOND, 0)
        await asyncio.sleep(100)
        produce(partition, b"a")
        assert broker.pending_of(0) == [SECOND] and partition.high_watermark.value == 0
        broker.log.write(FenceBroker(SECOND, broker.epochs[SECOND]))
        broker.log.stall = None
        stall.set()
        await asyncio.sleep(1)
        assert broker.isr_of(0) == [LEADER] and broker.pending_of(0) == []
        assert partition.high_watermark.value == 1

    simulate(scenario())


def test_a_broker_that_registered_anew_changes_nothing() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        before = broker.entries
        broker.epochs[LEADER] -= 1
        broker.fetch(SECOND, 0)
        await asyncio.sleep(60)
        assert 1 <= broker.proposals.failures < 40, "it is tried again, with pauses"
        assert broker.pending_of(0) == [] and broker.entries == before

    simulate(scenario())


def test_a_metadata_log_that_is_closed_leaves_the_outcome_open() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        partition = broker.partitions[0]
        broker.log.stall = asyncio.Event()
        broker.fetch(SECOND, 0)
        await settle()
        broker.metadata.close()
        await asyncio.sleep(100)
        assert broker.proposals.failures == 1 and broker.pending_of(0) == [SECOND]
        produce(partition, b"a")
        assert partition.high_watermark.value == 0

    simulate(scenario())


def test_a_refused_proposal_counts_no_more() -> None:
    # The partition changed in an entry that this broker had not read when it proposed.
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.log.write(FenceBroker(SECOND, broker.epochs[SECOND]))
        broker.fetch(SECOND, 0)
        assert broker.proposals.may_join(SECOND, broker.epochs[SECOND]), "the leader does not know of it yet"
        await asyncio.sleep(0.05)
        assert broker.proposals.failures == 1 and broker.pending_of(0) == [] and broker.isr_of(0) == [LEADER]
        assert not broker.proposals.may_join(SECOND, broker.epochs[SECOND])

    simulate(scenario())


def test_a_proposal_for_an_older_partition_epoch_is_refused_and_made_again() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.log.write(ChangePartition(TOPIC_ID, 0, 0, isr=(LEADER, THIRD)))
        broker.fetch(SECOND, 0)
        await asyncio.sleep(1)
        assert broker.isr_of(0) == [LEADER, SECOND, THIRD] and broker.proposals.failures == 1

    simulate(scenario())


def test_an_earlier_life_of_a_broker_does_not_join() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.fetch(SECOND, 0, epoch=broker.epochs[SECOND] - 1)
        await settle()
        assert broker.isr_of(0) == [LEADER] and broker.proposals.failures == 0
        before = broker.entries
        broker.fetch(SECOND, 0)
        await settle()
        assert broker.isr_of(0) == [LEADER, SECOND] and broker.entries == before + 1

    simulate(scenario())


def test_after_a_stop_nothing_is_proposed() -> None:
    async def scenario() -> None:
        broker = Broker(1)
        await broker.start()
        broker.log.stall = asyncio.Event()
        broker.fetch(SECOND, 0)
        await settle()
        await broker.proposals.stop()
        before = broker.entries
        broker.log.stall = None
        broker.fetch(THIRD, 0)
        await settle()
        assert broker.entries == before

    simulate(scenario())


def test_the_high_watermark_stops_waiting_for_a_fenced_follower_without_another_fetch() -> None:
    async def scenario() -> None:
        broker = Broker(1, (LEADER, SECOND))
        await broker.start()
        partition = broker.partitions[0]
        broker.proposals.cancel()  # the third replica is never proposed
        broker.fetch(SECOND, 0)
        broker.fetch(THIRD, 0)
        waiter = partition.wait_for_acks(produce(partition, b"a"), -1)
        broker.fetch(SECOND, 0)
        assert waiter is not None and not waiter.done(), "the third replica had caught up, so it is waited for"
        broker.log.write(FenceBroker(THIRD, broker.epochs[THIRD]))
        await broker.metadata.refresh()
        assert waiter.done() and partition.high_watermark.value == 1

    simulate(scenario())
