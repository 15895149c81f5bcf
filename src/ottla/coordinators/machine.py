"""The interface of a coordinator's state machine: what it is called with and what it returns.

A machine holds the state of one partition of an internal topic. It does no I/O and has no clock and no randomness of
its own. In a turn the runtime calls a method of the machine with a `Turn`, and the machine returns an `Outcome`. The
runtime appends the outcome's records to the partition in one batch, replays them into the machine, and sends the
replies once the records are committed.

State that is in records changes by replay only, so a machine that is loaded from its log has the same state. State that
is lost with the coordinator anyway (who waits for a rebalance, when a member sent its last heartbeat) may be changed
during the turn.

A machine refuses a request by raising KafkaError. It must not have changed anything then.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ottla.cluster.changes import ConfigResource
from ottla.cluster.image import Image
from ottla.config import BrokerConfig, GroupConfig
from ottla.observability.metrics import GroupMeter, TransactionMeter
from ottla.wire.message import Message

Ticket = int
"""The number of a request that waits for its reply. A machine may keep it and reply in a later turn."""

NOBODY: Ticket = -1
"""The ticket of a turn that no request waits for, such as one that a timer starts."""


Sight = Callable[[str], bool]
"""Says whether a client may know that a topic exists."""


class Caller(NamedTuple):
    """Who sent a request."""

    client_id: str
    host: str
    """The client's address with a slash before it, as Kafka shows it in group descriptions."""
    sight: Sight | None = None
    """Which topics the client may be assigned, or match with patterns. None: every topic."""


class Meters(NamedTuple):
    """The counters of the machines on this broker."""

    groups: GroupMeter
    transactions: TransactionMeter

    @classmethod
    def fresh(cls) -> "Meters":
        return cls(GroupMeter(), TransactionMeter())


class Turn(NamedTuple):
    """What a decision may depend on besides the machine's own state; and the meters that count the decision."""

    monotonic_ms: int
    """Time for time-outs: it never goes back, and has no meaning outside of this process."""
    wall_ms: int
    """Time that is stored in records and shown to people."""
    image: Image
    config: BrokerConfig
    meters: Meters
    ticket: Ticket = NOBODY

    def find_group_setting(self, group_id: str, name: str) -> int:
        """The value of a group setting that is in force for this group."""
        return GroupConfig.in_force(name, self.image.config(ConfigResource.GROUP, group_id), self.config)


class StoredRecord(NamedTuple):
    """One record of an internal topic, as messages of `formats`. A value of None deletes what the key stands for."""

    key: Message
    value: Message | None


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch: the identity under which a transaction runs."""

    id: int
    epoch: int


class Reply(NamedTuple):
    ticket: Ticket
    response: Any
    """A response message, or the KafkaError that the request fails with."""


class Outcome(NamedTuple):
    """What a turn decided. The records are appended in one batch; when they are committed, the replies are sent and the
    errands are run."""

    records: Sequence[StoredRecord] = ()
    replies: Sequence[Reply] = ()
    producer: ProducerIdentity | None = None
    """The records are part of this producer's open transaction: they take effect with its commit marker."""
    may_be_refused: bool = False
    """What happens if the log refuses the records as too large. True: the requests fail and the machine goes on. False:
    the machine is loaded again, because the turn changed state in memory that is wrong without the records."""
    errands: Sequence[Any] = ()
    """Work outside of the machine, such as writing markers to partitions. Its result comes back as another turn."""
    effects: Sequence[Callable[[], None]] = ()
    """Changes of state that is in memory only and that the records make true. They are applied after the append, before
    the records are replayed and before the replies are sent; if the append fails they are not applied."""

    @classmethod
    def answer(
        cls,
        turn: Turn,
        response: Any,
        records: Sequence[StoredRecord] = (),
        producer: ProducerIdentity | None = None,
        may_be_refused: bool = False,
    ) -> "Outcome":
        """The usual outcome: the request of this turn gets its reply once the records, if any, are committed."""
        return cls(records, (Reply(turn.ticket, response),), producer, may_be_refused)

    @classmethod
    def merge(cls, outcomes: Sequence["Outcome"]) -> "Outcome":
        """Join outcomes into one that does what all of them do, in their order, with one batch of records.

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
    """The state of one partition of an internal topic."""

    def replay(self, record: StoredRecord, written_ms: int, producer: ProducerIdentity | None) -> None:
        """Apply one record to the state. Called for every record, after its append and again when the log is loaded."""

    def end_transaction(self, producer: ProducerIdentity, committed: bool) -> None:
        """Apply a transaction marker: what the transaction left pending takes effect if committed, else is dropped."""

    def finish_loading(self, turn: Turn) -> Outcome:
        """Called after all records were replayed: set timers, finish what the last coordinator began."""

    def wake(self, turn: Turn) -> Outcome:
        """Called when the time `wake_at` has come."""

    @property
    def wake_at(self) -> int | None:
        """When to call `wake`, on the monotonic clock. Read again after every turn."""
