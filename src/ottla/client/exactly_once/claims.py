"""Claims: of all attempts that Spark makes at a task, only the first may write.

The tasks of a batch share one producer id, and a broker cannot tell two attempts of a task apart: it takes a batch with
known sequence numbers for a duplicate, whatever its content. So no two attempts may write. Spark's attempt number does
not help: when a stage starts again, because an executor was lost, it counts from zero, and attempts of the old and the
new stage run at the same time.

Therefore each attempt raises a counter that the broker keeps: the epoch of the transactional id
`<ledger>-claim-<task>`, which each InitProducerId raises by one. Only the attempt that gets the number after the one
that the driver knows may write. No transaction is ever begun with these ids.
"""

from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.transactions import raise_epoch


class Claim(NamedTuple):
    """The counter of a task when its batch began. It is sent to the task."""

    name: str
    producer_id: int
    epoch: int

    def next(self) -> "Claim":
        """The counter after the first attempt has raised it."""
        return self._replace(epoch=self.epoch + 1)


class ClaimBook:
    """The counters of all tasks of one query and topic, as the driver knows them."""

    def __init__(self, client: Client, ledger: str) -> None:
        self._client = client
        self._ledger = ledger
        self._claims: dict[int, Claim] = {}

    def open(self, tasks: int) -> tuple[Claim, ...]:
        """The claims of the tasks 0 to `tasks` - 1 of a batch."""
        return tuple(self._claims.get(task) or self._raise(task) for task in range(tasks))

    def settle(self, tasks: list[int]) -> None:
        """The batch is committed, and these tasks have taken their claims."""
        for task in tasks:
            self._claims[task] = self._claims[task].next()

    def forget(self) -> None:
        """The batch has failed, so it is unknown which claims were taken."""
        self._claims.clear()

    def _raise(self, task: int) -> Claim:
        claim = _raise_counter(self._client, f"{self._ledger}-claim-{task}")
        self._claims[task] = claim
        return claim


def take_claim(client: Client, claim: Claim) -> bool:
    """Raise the counter; True if this attempt is the first and may write. To be called once per attempt.

    A lost answer can make the only attempt look like a second one, never the other way round.
    """
    return _raise_counter(client, claim.name) == claim.next()


def _raise_counter(client: Client, name: str) -> Claim:
    return Claim(name, *raise_epoch(client, name))
