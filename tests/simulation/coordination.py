"""One seed of groups and transactions: members and transactional producers come, go and die, and so does the broker.

At the end of the run:

- no partition had two owners at a time (`ownership`);
- committed offsets are there (`offset_checker`);
- every transaction is there as a whole or not at all, as its producer was told, once and in order, and so is the
  offset that it committed (`transactor`); what a reader of committed records was shown is still there;
- every client came to an end: nothing waits for ever.

Where not every record is flushed, a power cut may take back the first three. Then only the last promise is checked.
"""

import asyncio
from random import Random

from ottla.topic_partition import TopicPartition
from tests.simulation import admin
from tests.simulation.checker import check
from tests.simulation.classic_member import PARTITIONS, ClassicMember
from tests.simulation.consumer_member import ConsumerMember
from tests.simulation.group_member import Commits, GroupMember
from tests.simulation.history import Ended, Ending, History
from tests.simulation.loop import simulate
from tests.simulation.offset_checker import OFFSETS_TOPIC
from tests.simulation.ownership import Ownership
from tests.simulation.peace import end_trouble, finish, last_restart
from tests.simulation.scenario import LIMIT_S, Settings, Verdict, broker_settings
from tests.simulation.transactional_client import TransactionalClient
from tests.simulation.transactor import GROUP, CommittedReader, Ledger, Transactor, problems_of
from tests.simulation.trouble import Trouble
from tests.simulation.world import World

WORK, LEDGERS, OUTPUT = "work", "ledgers", "output"
LEDGERS_MAX = 3
TRANSACTIONS_MAX = 15
TOPIC_SETTINGS = {"retention.ms": "-1"}


def run(seed: int, *, trace_lines: int | None = 200) -> Verdict:
    return simulate(_run(seed, trace_lines))


async def _run(seed: int, trace_lines: int | None) -> Verdict:
    world = World(seed, trace_lines=trace_lines)
    try:
        coordination = Coordination(world)
        problems = []
        try:
            async with asyncio.timeout(LIMIT_S):
                await coordination.play()
            problems = coordination.find_problems()
        except Exception as error:
            problems.append(f"STUCK: {error!r}")
        problems += [f"SURPRISE {surprise}" for surprise in world.surprises]
        life, lines = coordination.machine.life, list(world.trace.lines)
        return Verdict(seed, world.trace.digest, problems, coordination.deeds, life, lines)
    finally:
        world.close()


class Coordination:
    def __init__(self, world: World) -> None:
        self.world = world
        self._random = world.random("coordination")
        self._durable = self._random.random() < 0.8
        self.machine = world.add_machine("broker-1", settings_of(self._random, durable=self._durable))
        self._commits: list[Commits] = []
        self._ownerships: list[Ownership] = []
        self._ledgers = [
            Ledger(f"writer-{index}", TopicPartition(LEDGERS, index))
            for index in range(self._random.randint(0, LEDGERS_MAX))
        ]
        self._topic_partitions = [TopicPartition(OUTPUT, index) for index in range(2)]
        self._readers: list[CommittedReader] = []
        self._found: dict[TopicPartition, list[bytes]] = {}
        self._offsets: dict[str, int] = {}
        self._history = History(frozenset({OFFSETS_TOPIC} if self._durable else ()), world.events)

    @property
    def deeds(self) -> int:
        """How many transactions and confirmations took place. A seed with few of them shows little."""
        transactions = sum(len(ledger.deeds) for ledger in self._ledgers)
        return transactions + sum(ownership.confirmations for ownership in self._ownerships)

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        trouble = Trouble(self.machine, [admin.HOST], self.world.random("trouble"))
        reviving = loop.create_task(trouble.revive(), name="reviving")
        striking = loop.create_task(trouble.strike(), name="striking")
        ending = loop.call_later(self._random.choice((4, 12, 30)), end_trouble, self.machine, trouble)
        topics = ((WORK, PARTITIONS), (LEDGERS, LEDGERS_MAX), (OUTPUT, len(self._topic_partitions)))
        ids = {
            name: await admin.create_topic(self.machine, name, count, TOPIC_SETTINGS, self._random)
            for name, count in topics
        }
        members, transactors = self._build_members(ids[WORK]), self._build_transactors()
        trouble.clients += [*(member.name for member in members), *(each.name for each in transactors)]
        tasks = [loop.create_task(member.run(), name=member.name) for member in members]
        tasks += [loop.create_task(reader.run(), name=reader.name) for reader in self._readers]
        working = [
            loop.create_task(each.run(self._random.randint(1, TRANSACTIONS_MAX)), name=each.name)
            for each in transactors
        ]
        await asyncio.sleep(max(ending.when() - loop.time(), 0))
        end_trouble(self.machine, trouble)
        await finish([*working, striking, loop.create_task(self.machine.up.wait(), name="the last start")])
        for member in members:
            member.stopped = True
        for reader in self._readers:
            reader.stopped = True
        await finish(tasks)
        reviving.cancel()
        await asyncio.wait([reviving])
        await last_restart(self.machine, self._random)
        await finish([loop.create_task(self._read_final_state(), name="the last look")])

    def _build_members(self, topic_id: bytes) -> list[GroupMember]:
        """Build the members: of two groups, one for each protocol, or of one group that has members of both
        protocols."""
        kinds = [kind for kind in (ClassicMember, ConsumerMember) for _ in range(self._random.randint(0, 3))]
        together = self._random.random() < 0.3
        members: list[GroupMember] = []
        for group in ("both",) if together else (ClassicMember.__name__, ConsumerMember.__name__):
            ownership, commits = Ownership(group), Commits(group)
            self._ownerships.append(ownership)
            self._commits.append(commits)
            for kind in kinds:
                if together or kind.__name__ == group:
                    name = f"member-{len(members)}"
                    random = self.world.random(name)
                    members.append(kind(name, self.machine, WORK, topic_id, ownership, commits, random))
        return members

    def _build_transactors(self) -> list[Transactor]:
        """Build one or two producers for each transactional id, and a reader of its committed records."""
        transactors = []
        for ledger in self._ledgers:
            for number in range(self._random.randint(1, 2)):
                name = f"{ledger.transactional_id}-{number}"
                random = self.world.random(name)
                transactors.append(Transactor(name, self.machine, ledger, self._topic_partitions, random))
            self._readers.append(CommittedReader(f"reader-{ledger.partition}", self.machine, ledger.partition))
        return transactors

    async def _read_final_state(self) -> None:
        """Read the final offsets and records after the last fault.

        Taking over each transactional id aborts the transaction that its last producer left open.
        """
        judge = TransactionalClient("judge", self.machine, "", 2)
        for commits in self._commits:
            for index in commits.partitions:
                offset = await judge.stable_offset(commits.group, TopicPartition(WORK, index))
                self._history.final_offsets[commits.key(index)] = offset
        if self._may_have_lost:
            return  # the power cut may have left a transaction open that its coordinator does not know
        for ledger in self._ledgers:
            await TransactionalClient("judge", self.machine, ledger.transactional_id, 2).init()
        for partition in (*(ledger.partition for ledger in self._ledgers), *self._topic_partitions):
            self._found[partition] = await judge.read_committed(partition)
        for ledger in self._ledgers:
            self._offsets[ledger.transactional_id] = await judge.stable_offset(GROUP, ledger.partition)

    @property
    def _may_have_lost(self) -> bool:
        cuts = any(isinstance(event, Ended) and event.ending is Ending.POWER_CUT for event in self._history.events)
        return cuts and not self._durable

    def find_problems(self) -> list[str]:
        problems = [str(violation) for violation in check(self._history)]
        if self._may_have_lost:
            return problems
        for ownership in self._ownerships:
            problems += ownership.problems
        for ledger in self._ledgers:
            problems += problems_of(ledger, self._found, self._offsets[ledger.transactional_id])
        for reader in self._readers:
            if reader.seen != self._found[reader.partition][: len(reader.seen)]:
                problems.append(f"SHOWN {reader.partition}: {reader.seen}, in the end {self._found[reader.partition]}")
        return problems


def settings_of(random: Random, *, durable: bool) -> Settings:
    """Short intervals and time-outs, so that much happens in a few virtual seconds."""
    settings = {
        **broker_settings(random),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "group.initial.rebalance.delay.ms": random.choice(("0", "300")),
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "4000",
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": random.choice(("0", "1000")),
        "group.consumer.migration.policy": "bidirectional",
    }
    return settings | ({"log.flush.interval.messages": "1"} if durable else {})
