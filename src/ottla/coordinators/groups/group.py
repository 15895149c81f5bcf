"""The interface of a group, of either kind, as the machine uses it."""

from collections.abc import Callable
from typing import Literal, Protocol

from ottla.coordinators.machine import Outcome, StoredRecord, Turn

PartitionCheck = Callable[[bytes, int], None]
"""Checks whether the offset of one partition, by topic id and number, may be committed: KafkaError if not."""


class Group(Protocol):
    id: str

    @property
    def kind(self) -> Literal["classic", "consumer"]: ...

    @property
    def state_name(self) -> str:
        """The state as Kafka's tools show it: Empty, Stable, Dead, or a state of this kind of group."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    @property
    def size(self) -> int:
        """The number of members."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def find_expiry_start(self, committed_ms: int) -> int | None:
        """When the retention time of an offset that was committed at `committed_ms` began. None: it has not begun."""

    # Offsets: each check raises KafkaError if the request must be refused

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn, *, api_version: int
    ) -> PartitionCheck | None:
        """Check whether this member may commit now; a success counts as a heartbeat.

        Returns a check that is made for each partition, or None if all partitions may be committed.
        """

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn
    ) -> PartitionCheck | None: ...

    def check_fetch(self, member_id: str, member_epoch: int, turn: Turn) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    # The log

    def finish_loading(self, turn: Turn) -> Outcome:
        """Called after all records were replayed: set timers, start sessions."""

    def tombstones(self) -> list[StoredRecord]:
        """Records that delete the group, but not its offsets."""

    # Time

    @property
    def wake_at(self) -> int | None: ...

    def wake(self, turn: Turn) -> Outcome: ...
