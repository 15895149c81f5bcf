"""What every kind of group offers to the machine that keeps the groups of one partition."""

from collections.abc import Callable
from typing import Literal, Protocol

from ottla.coordinators.machine import Outcome, StoredRecord, Turn

PartitionCheck = Callable[[bytes, int], None]
"""Whether a partition's offset may be committed, by topic id and number: KafkaError if not."""


class Group(Protocol):
    id: str

    @property
    def kind(self) -> Literal["classic", "consumer"]: ...

    @property
    def state_name(self) -> str:
        """As Kafka's tools show it: Empty, Stable, Dead and, between them, what the kind of group has."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Nobody is in it."""

    @property
    def size(self) -> int:
        """How many members there are."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def find_expiry_start(self, committed_ms: int) -> int | None:
        """When the retention of an offset that was committed then began; None while it has not."""

    # Offsets: KafkaError if it must not be

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn, *, api_version: int
    ) -> PartitionCheck | None:
        """May this member commit? If so, it is alive. What comes back is asked for each partition."""

    def check_transactional_commit(
        self, member_id: str, instance_id: str | None, generation: int, turn: Turn
    ) -> PartitionCheck | None: ...

    def check_fetch(self, member_id: str, member_epoch: int, turn: Turn) -> None: ...

    def check_delete_offsets(self) -> None: ...

    def check_delete(self) -> None: ...

    # The log

    def finish_loading(self, turn: Turn) -> Outcome:
        """Everything was replayed: set timers, begin sessions."""

    def tombstones(self) -> list[StoredRecord]:
        """Records that delete the group, but not its offsets."""

    # Time

    @property
    def wake_at(self) -> int | None: ...

    def wake(self, turn: Turn) -> Outcome: ...
