"""Random histories of one replicated partition: real logs, leaders and fetchers on a simulated network and disks.

The metadata is always right, but brokers learn of each change some time later, each at its own time. Leaders are
elected from the ISR only. Records are deleted up to any offset, also within a batch. Trouble: brokers are killed and
restarted, connections are cut, held back and reset. What must hold:

- A record that all in-sync replicas have, so that its producer got an answer, is in the log of every later leader,
  unless it was deleted.
- Records below a high watermark never change.
- A follower copies only what its leader has.
- A log has no hole, and leader epochs never go down in it.
- Each replica knows in which leader epochs its records were written. A leader tells its followers by that where their
  logs diverge, maybe long after it went wrong.
- When the trouble is over, all logs become equal.
"""

import asyncio
from dataclasses import replace
from random import Random
from unittest.mock import patch

from ottla.cluster.image import PartitionImage
from ottla.records.batch import headers
from ottla.replication.partition import Partition
from ottla.storage.files import Bytes
from ottla.storage.log import LogSettings
from tests.simulation.loop import simulate
from tests.simulation.scenario import Verdict
from tests.unit.replication.small_cluster import SmallCluster, read

BROKERS = (1, 2, 3)
LEARNING_S_MAX = 0.2
PEACE_S = 100.0
"""How long the replicas may take to become equal, in virtual time."""
STEPS = 120
SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=200)


class LostRecord(AssertionError):
    pass


class ReplicationHistory:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.is_tardy = seed % 4 == 3
        """Whether answers are held back over changes of the leader, to and fro."""
        self.has_deletions = seed % 4 == 1
        # Each broker leads another partition for ever, so that connections outlive the leaders of partition 0.
        self.cluster = SmallCluster(
            *BROKERS, seed=seed, settings=SETTINGS, partitions=1 + len(BROKERS), replica_fetch_backoff_ms="100"
        )
        for broker_id in BROKERS:
            self.cluster.elect(broker_id, index=broker_id)
        self.loop = asyncio.get_running_loop()
        self.dead: dict[int, None] = {}
        self.learned_until = dict.fromkeys(BROKERS, 0.0)
        self.acknowledged: dict[int, bytes] = {}
        self.committed: dict[int, bytes | None] = {}
        """What was seen below any high watermark."""
        self.deleted_to = 0
        """Records from this offset on have not been deleted."""
        self.number = 0
        self.lives = len(BROKERS)
        self.deadline = 0.0
        self.late_until = 0.0
        self.strangers: list[str] = []
        """Records that a follower has copied from an answer of an earlier leader epoch."""
        self.state = self.cluster.elect(1)

    # Metadata

    def change(self, state: PartitionImage) -> None:
        """Every live broker learns of the change a while later, in the order of changes."""
        self.state = self.cluster.states[0] = replace(state, partition_epoch=self.state.partition_epoch + 1)
        for broker_id in BROKERS:
            if broker_id not in self.dead:
                delay_s = self.random.choice((0.0, 0.002, LEARNING_S_MAX)) * self.random.random()
                at = max(self.learned_until[broker_id], self.loop.time() + delay_s)
                self.learned_until[broker_id] = at
                self.loop.call_at(at, self.learn, broker_id, self.cluster[broker_id].replicas, self.state)

    def learn(self, broker_id: int, life: object, state: PartitionImage) -> None:
        broker = self.cluster[broker_id]
        if broker_id in self.dead or broker.replicas is not life:
            return
        known = broker.partition().state
        if known is None or known.partition_epoch < state.partition_epoch:
            broker.learn(0, state)

    def elect(self) -> None:
        candidates = [broker_id for broker_id in self.state.isr if broker_id not in self.dead]
        leader = self.random.choice(candidates) if candidates else -1
        if leader != self.state.leader:
            self.change(replace(self.state, leader=leader, leader_epoch=self.state.leader_epoch + 1))

    def fail_over_twice(self) -> None:
        """Two leaders in quick succession, right after records were acknowledged."""
        self.produce()
        first_s = self.random.uniform(0.001, 0.02)
        self.loop.call_later(first_s, self.elect)
        self.loop.call_later(first_s + self.random.uniform(0, 0.01), self.elect)

    def answer_late(self) -> None:
        """An answer of the leader is on its way while another one leads, which has it truncate its log."""
        leader = self.state.leader
        others = [broker_id for broker_id in self.state.isr if broker_id not in (leader, *self.dead)]
        if leader in self.dead or len(others) < 2 or self.loop.time() < self.late_until:
            return
        between, late = self.random.sample(others, 2)
        network, s = self.cluster.network, self.random.uniform(0.2, 1.0)
        for other in others:
            network.partition(f"b{leader}", f"b{other}")
        self.produce()
        self.loop.call_later(0.01, self.hand_over, leader, between)
        self.loop.call_later(0.01 + s, network.heal, f"b{leader}", f"b{between}")
        self.loop.call_later(0.01 + 2 * s, self.hand_over, between, leader)
        self.loop.call_later(0.01 + 3 * s, network.heal, f"b{leader}", f"b{late}")
        self.late_until = self.loop.time() + 0.01 + 3 * s

    def hand_over(self, leader: int, successor: int) -> None:
        if self.state.leader == leader and successor in self.state.isr and successor not in self.dead:
            self.change(replace(self.state, leader=successor, leader_epoch=self.state.leader_epoch + 1))

    def remove_from_isr(self, broker_id: int) -> None:
        isr = tuple(other for other in self.state.isr if other != broker_id)
        if isr and broker_id in self.state.isr:
            self.change(replace(self.state, isr=isr))

    def extend_isr(self) -> None:
        """Let a follower join that has everything. The leader knows it at once: it is the one who proposes it."""
        leader_id = self.state.leader
        if leader_id in self.dead or leader_id < 0:
            return
        leader = self.cluster[leader_id].partition()
        if leader.state is None or leader.state.partition_epoch != self.state.partition_epoch or leader.in_sync is None:
            return
        start = leader.in_sync.start_offset
        for broker_id in BROKERS:
            if broker_id in self.state.isr or broker_id in self.dead:
                continue
            follower = leader.in_sync.followers[broker_id]
            if follower.end_offset >= max(leader.high_watermark.value, start):
                self.change(replace(self.state, isr=(*self.state.isr, broker_id)))
                self.learn(leader_id, self.cluster[leader_id].replicas, self.state)
                return

    # What happens

    def kill(self) -> None:
        alive = [broker_id for broker_id in BROKERS if broker_id not in self.dead]
        if len(alive) < 2:
            return
        broker_id = self.random.choice(alive)
        self.observe()
        self.cluster[broker_id].die()
        self.dead[broker_id] = None
        self.remove_from_isr(broker_id)
        if self.state.leader == broker_id:
            self.elect()

    def restart(self) -> None:
        if self.dead:
            broker_id = self.random.choice(list(self.dead))
            del self.dead[broker_id]
            self.lives += 1
            checkpoint = self.random.randint(0, max(self.committed, default=0))
            # The log start of the checkpoint may be an old one.
            start = self.cluster[broker_id].log().log_start_offset
            start = self.random.choice((0, start)) if start else 0
            self.cluster[broker_id].restart(high_watermark=checkpoint, log_starts={0: start})
            for index, state in self.cluster.states.items():
                self.cluster[broker_id].learn(index, state)
            if self.state.leader < 0:
                self.elect()

    def produce(self) -> None:
        for broker_id in BROKERS:  # more than one broker may believe that it leads
            if broker_id in self.dead or not self.cluster[broker_id].partition().is_leader:
                continue
            values = []
            for _ in range(self.random.randint(1, 3)):
                self.number += 1
                values.append(b"%d of broker %d" % (self.number, broker_id))
            partition = self.cluster[broker_id].partition()
            if partition.log._refused is not None:
                continue  # it is being truncated
            appended = self.cluster[broker_id].produce(*values)
            records = dict(zip(range(appended.base_offset, appended.last_offset + 1), values, strict=True))
            future = partition.wait_for_acks(appended, -1)
            if future is None:
                self.acknowledge(records)
            else:
                future.add_done_callback(
                    lambda done, records=records: (
                        None  # type: ignore[misc]
                        if done.cancelled() or done.exception()
                        else self.acknowledge(records)
                    )
                )

    def acknowledge(self, records: dict[int, bytes]) -> None:
        for offset, value in records.items():
            if self.acknowledged.setdefault(offset, value) != value:
                raise LostRecord(f"offset {offset} was acknowledged as {self.acknowledged[offset]!r} and {value!r}")

    def delete_records(self) -> None:
        """Delete a few records, or most."""
        leader = self.state.leader
        if leader in self.dead or leader < 0 or not self.cluster[leader].partition().is_leader:
            return
        partition = self.cluster[leader].partition()
        low, high = partition.log.log_start_offset, partition.high_watermark.value
        offset = min(low + self.random.choice((1, 5, 100)), self.random.randint(low, high))
        self.deleted_to = max(self.deleted_to, partition.delete_records(offset))

    def cut(self) -> None:
        one, other = self.random.sample(BROKERS, 2)
        self.cluster.network.partition(f"b{one}", f"b{other}")

    def reset(self) -> None:
        self.cluster.network.reset_connections(f"b{self.random.choice(BROKERS)}")

    def shrink(self) -> None:
        outside = [broker_id for broker_id in self.state.isr if broker_id != self.state.leader]
        if outside:
            self.remove_from_isr(self.random.choice(outside))

    # What must hold

    def observe(self) -> None:
        """Records below a high watermark are the same everywhere and for ever."""
        assert not self.strangers, self.strangers[0]
        for broker_id in BROKERS:
            if broker_id in self.dead:
                continue
            partition = self.cluster[broker_id].partition()
            high_watermark = partition.high_watermark.value
            assert high_watermark <= partition.log.end_offset
            expected, newest = partition.log.log_start_offset, -1
            for offset, epoch, value in read(partition.log):
                known = partition.log.epochs.epoch_at(offset)
                assert known == epoch, f"broker {broker_id} takes offset {offset} of epoch {epoch} for one of {known}"
                assert offset == expected, f"broker {broker_id} has a hole from {expected} to {offset}"
                assert epoch >= newest, f"broker {broker_id} has epoch {epoch} at {offset} behind epoch {newest}"
                expected, newest = offset + 1, epoch
                if not partition.is_leader:
                    continue
                if offset < high_watermark and self.committed.setdefault(offset, value) != value:
                    raise LostRecord(f"offset {offset} was {self.committed[offset]!r} and is {value!r} on {broker_id}")

    def check_copy(self, partition: Partition, records: Bytes) -> None:
        """What a follower has just appended is in the log of the leader, if both mean the same leader epoch.

        A leader only appends within its epoch. Records that it does not have come from an answer of an earlier epoch.
        """
        state = partition.state
        if state is None or state.leader in self.dead:
            return
        leader = self.cluster[state.leader].partition(partition.index)
        if not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        for _, header in headers(records):
            if header.next_offset <= leader.log.log_start_offset:
                continue  # was deleted meanwhile
            known = leader.log.epochs.epoch_at(header.last_offset)
            if known != header.leader_epoch or header.next_offset > leader.log.end_offset:
                self.strangers.append(f"broker {partition.broker_id} copied {header}, which its leader does not have")

    def check_leader(self) -> None:
        """The leader in the metadata has everything that was acknowledged before it was elected."""
        leader = self.state.leader
        if leader in self.dead or leader < 0:
            return
        found = {offset: value for offset, _, value in read(self.cluster[leader].log())}
        for offset, value in self.acknowledged.items():
            if offset >= self.deleted_to and found.get(offset) != value:
                raise LostRecord(
                    f"offset {offset}: {value!r} was acknowledged, leader {leader} has {found.get(offset)!r}"
                )

    async def play(self, steps: int) -> None:
        actions = [
            *[self.produce] * 12,
            *[self.extend_isr] * 8,
            self.elect,
            *[self.fail_over_twice] * 4,
            *[self.restart] * 2,
            self.kill,
            self.cut,
            *[self.delete_records] * (4 if self.has_deletions else 0),
            *[self.cluster.network.heal_all] * 2,
            self.reset,
            self.shrink,
            *[self.answer_late] * (12 if self.is_tardy else 0),
        ]
        for _ in range(steps):
            self.random.choice(actions)()
            self.observe()
            self.check_leader()
            await asyncio.sleep(self.random.choice((0, 0.001, 0.01, 0.1, 0.5)))
        await self.make_peace()

    async def make_peace(self) -> None:
        self.deadline = self.loop.time() + PEACE_S
        self.cluster.network.heal_all()
        while self.dead:
            self.restart()
        if self.state.leader < 0:
            self.elect()
        await asyncio.sleep(1)
        while len(self.state.isr) < len(BROKERS):
            self.extend_isr()
            await self.step_of_peace()
        self.number += 1
        self.produce()
        leader = self.cluster[self.state.leader].partition()
        while leader.high_watermark.value < leader.log.end_offset:
            await self.step_of_peace()
        leader.delete_records(self.deleted_to)  # which an old checkpoint may have undone
        while len({tuple(read(self.cluster[broker_id].log())) for broker_id in BROKERS}) > 1:
            await self.step_of_peace()
        self.check_leader()
        await self.cluster.close()

    async def step_of_peace(self) -> None:
        await asyncio.sleep(0.05)
        ends = {broker_id: self.cluster[broker_id].log().end_offset for broker_id in BROKERS}
        assert self.loop.time() < self.deadline, f"the replicas do not become equal: {ends}, {self.state}"


def run(seed: int, *, steps: int = STEPS, trace_lines: int | None = None) -> Verdict:
    """Play one history. There is no trace: the seed gives the same history again."""

    async def main() -> Verdict:
        history = ReplicationHistory(seed)
        problems = []

        def append_and_check(partition: Partition, records: Bytes, now_ms: int) -> None:
            real(partition, records, now_ms)
            history.check_copy(partition, records)

        real = Partition.append_as_follower
        try:
            with patch.object(Partition, "append_as_follower", append_and_check):
                await history.play(steps)
        except AssertionError as error:
            problems = [str(error)]
        return Verdict(seed, "-", problems, len(history.acknowledged), history.lives)

    return simulate(main())
