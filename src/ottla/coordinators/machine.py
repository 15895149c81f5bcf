"""What a coordinator's state machine is handed and what it hands back.

A machine does no I/O and has no clock and no randomness of its own. A turn goes: the runtime calls a method of the
machine with a `Turn`; the machine looks at its state and returns an `Outcome`; the runtime appends the outcome's
records to the machine's partition of the internal topic in one batch, replays them into the machine, and sends the
replies once they are committed. What is in records changes by replay only, so loading a machine from its log gives the
same state. What dies with the coordinator anyway (who waits for a rebalance, when a member was last heard of) is
changed on the spot.

A machine refuses a request by raising KafkaError: nothing may have changed then.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.cluster.changes import ConfigResource
from ottla.cluster.image import Image
from ottla.config import BrokerConfig, GroupConfig
from ottla.observability.metrics import GroupMeter, TransactionMeter
from ottla.wire.message import Message

Ticket = int
"""Names a request that waits for its answer. A machine may keep it and answer in a later turn."""

NOBODY: Ticket = -1
"""The ticket of a turn that nobody waits for: a timer's."""


class Caller(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str
    """As Kafka tells it: the address with a slash before it."""


class Meters(NamedTuple):
    """Where machines count what they decide."""

    groups: GroupMeter
    transactions: TransactionMeter

    @classmethod
    def fresh(cls) -> "Meters":
        return cls(GroupMeter(), TransactionMeter())


class Turn(NamedTuple):
    """Everything that a decision may depend on besides the machine's own state, and where it is counted."""

    monotonic_ms: int
    """For time-outs: never goes back, and means nothing to anybody else."""
    wall_ms: int
    """For what is stored and shown."""
    image: Image
    config: BrokerConfig
    meters: Meters
    ticket: Ticket = NOBODY

    def group_setting(self, group_id: str, name: str) -> int:
        """As it counts for this group now."""
        return GroupConfig.in_force(name, self.image.config(ConfigResource.GROUP, group_id), self.config)


class StoredRecord(NamedTuple):
    """One record of an internal topic: messages of `formats`. A value of None deletes what was stored under the key."""

    key: Message
    value: Message | None


class Producer(NamedTuple):
    """In whose transaction records are written."""

    id: int
    epoch: int


class Reply(NamedTuple):
    ticket: Ticket
    response: Any
    """A response message, or the KafkaError that is told instead."""


class Outcome(NamedTuple):
    """What a turn decided. Records first, in one batch; replies when they are committed; then the errands."""

    records: Sequence[StoredRecord] = ()
    replies: Sequence[Reply] = ()
    producer: Producer | None = None
    """The records are part of this producer's open transaction: they count once its marker says so."""
    may_be_refused: bool = False
    """Records that are too large for the log: everybody who is replied to is told so, and the machine goes on. Without
    this it is loaded again, for it may have changed something on the spot that only the records make true."""
    errands: Sequence[Any] = ()
    """Work outside of the machine (markers to write in other partitions); its end comes back as another turn."""
    effects: Sequence[Callable[[], None]] = ()
    """Changes of what is in memory only that the records make true. They are made once the log has taken the records,
    before these are replayed and before the replies leave."""

    @classmethod
    def answer(
        cls,
        turn: Turn,
        response: Any,
        records: Sequence[StoredRecord] = (),
        producer: Producer | None = None,
        may_be_refused: bool = False,
    ) -> "Outcome":
        """The usual outcome: the caller of this turn gets its answer once the records, if any, are committed."""
        return cls(records, (Reply(turn.ticket, response),), producer, may_be_refused)

    @classmethod
    def merge(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """One outcome that does what all of these do, in their order, with one batch of records.

        A batch belongs to one transaction or to none, so outcomes with records must agree on the producer. The merged
        outcome may be refused only if each of them may be.
        """
        producers = {outcome.producer for outcome in outcomes if outcome.records}
        assert len(producers) <= 1, f"records of several producers in one batch: {producers}"
        return cls(
            [record for outcome in outcomes for record in outcome.records],
            [reply for outcome in outcomes for reply in outcome.replies],
            producers.pop() if producers else None,
            bool(outcomes) and all(outcome.may_be_refused for outcome in outcomes),
            [errand for outcome in outcomes for errand in outcome.errands],
            [effect for outcome in outcomes for effect in outcome.effects],
        )


NOTHING = Outcome()


class Machine(Protocol):
    """One partition of an internal topic, as state."""

    def replay(self, record: StoredRecord, written_ms: int, producer: Producer | None) -> None:
        """Take one record into the state. Called for every record, right after its append and again when loading."""

    def end_transaction(self, producer: Producer, committed: bool) -> None:
        """A marker: what the producer's transaction left pending counts now, or is gone."""

    def finish_loading(self, turn: Turn) -> Outcome:
        """All records were replayed: set timers, finish what the last coordinator began."""

    def wake(self, turn: Turn) -> Outcome:
        """`wake_at` has come."""

    @property
    def wake_at(self) -> int | None:
        """When `wake` wants to be called, on the monotonic clock. Read again after every turn."""
