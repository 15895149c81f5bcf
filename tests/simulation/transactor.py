"""A transactional producer in a simulation that may die before its transactions end.

Each transaction has a number. It is written into the ledger of its transactional id and into some other partitions, and
committed as the offset of a group, or aborted. Two producers may have the same transactional id: then they fence each
other. `problems_of` checks how all transactions of an id ended.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from ottla.topic_partition import TopicPartition
from tests.simulation.transactional_client import NOBODY, StartOver, TransactionalClient
from tests.simulation.world import Machine

GROUP = "copies"
READING_S = 0.2


@dataclass
class Deed:
    """One transaction: what it wrote where, and what its producer was told."""

    number: int
    producer: str
    partitions: list[TopicPartition] = field(default_factory=list)
    told: bool | None = None
    """Committed, aborted, or unknown because the answer did not arrive."""

    @property
    def value(self) -> bytes:
        return b"%d" % self.number


@dataclass
class Ledger:
    """All transactions of one transactional id, of all producers that had it."""

    transactional_id: str
    partition: TopicPartition
    deeds: list[Deed] = field(default_factory=list)

    def begin(self, producer: str) -> Deed:
        self.deeds.append(Deed(len(self.deeds), producer))
        return self.deeds[-1]


class Transactor(TransactionalClient):
    def __init__(
        self, name: str, machine: Machine, ledger: Ledger, partitions: Sequence[TopicPartition], random: Random
    ) -> None:
        timeout_ms = random.choice((1500, 30_000))
        super().__init__(name, machine, ledger.transactional_id, random.choice((1, 2)), timeout_ms=timeout_ms)
        self._ledger = ledger
        self._topic_partitions = partitions
        self._random = random
        self._pause_s = random.choice((0.01, 0.1, 0.6))

    async def run(self, transactions: int) -> None:
        for _ in range(transactions):
            try:
                if self.producer == NOBODY:
                    await self.init()
                await self._transact(self._ledger.begin(self.name))
            except StartOver:
                self.producer = NOBODY
            await self._rest()

    async def _transact(self, deed: Deed) -> None:
        others = self._random.sample(self._topic_partitions, self._random.randint(0, len(self._topic_partitions)))
        for partition in (self._ledger.partition, *others):
            deed.partitions.append(partition)
            await self.write(partition, b"%s:%s" % (self.transactional_id.encode(), deed.value))
            await self._rest()
        await self.commit_offset(GROUP, self._ledger.partition, deed.number)
        if self._random.random() < 0.1:  # it dies, and the next producer of this id has to abort the transaction
            raise StartOver
        committed = self._random.random() < 0.7
        await self.end(committed=committed)
        deed.told = committed

    async def _rest(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self._pause_s))


class CommittedReader(TransactionalClient):
    """Reads committed records during the faults. What it was shown once must stay in the log."""

    def __init__(self, name: str, machine: Machine, partition: TopicPartition) -> None:
        super().__init__(name, machine, "", 2)
        self.partition = partition
        self.seen: list[bytes] = []
        self.stopped = False

    async def run(self) -> None:
        offset = 0
        while not self.stopped:
            found, offset, _ = await self.read_some(self.partition, offset)
            self.seen += found
            await asyncio.sleep(READING_S)


def problems_of(ledger: Ledger, found: Mapping[TopicPartition, Sequence[bytes]], offset: int) -> Iterator[str]:
    """Find what is wrong with the transactions of an id. `found` has the final records, `offset` is the group's."""
    name = ledger.transactional_id
    numbers = {partition: numbers_of(name, values) for partition, values in found.items()}
    order = numbers[ledger.partition]
    for partition, there in numbers.items():
        if len(set(there)) < len(there):
            yield f"TWICE {partition}: {there}"
        if [number for number in order if number in there] != there:
            yield f"REORDERED {partition}: {there}, in the ledger of {name} it is {order}"
    for deed in ledger.deeds:
        parts = {partition: deed.number in numbers[partition] for partition in deed.partitions}
        if len(set(parts.values())) > 1:
            yield f"IN PART {name}: transaction {deed.number} is there and not there: {parts}"
        elif deed.told is not None and deed.told != any(parts.values()):
            yield f"WRONG END {name}: transaction {deed.number}, told {deed.told}, found {parts}"
    for producer in sorted({deed.producer for deed in ledger.deeds}):
        own = [number for number in order if ledger.deeds[number].producer == producer]
        if own != sorted(own):
            yield f"REORDERED {name}: {producer} committed {own}"
    if offset != (order[-1] if order else -1):
        yield f"OFFSET {name}: the group is at {offset}, the last transaction is {order[-1:]}"


def numbers_of(transactional_id: str, values: Sequence[bytes]) -> list[int]:
    """The numbers of one id's transactions in a partition that many producers write to."""
    split = (value.decode().split(":") for value in values)
    return [int(number) for name, number in split if name == transactional_id]
