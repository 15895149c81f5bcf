"""Who writes: of all attempts that Spark makes at a task, the first one and no other.

The tasks of a batch share one producer, and a broker cannot tell two of its writers apart: it takes a batch that has
the number of one it knows for the same batch sent twice, whatever is in it. So no two attempts at a task may write.
Spark tells an attempt how often its task has failed, but when a stage is begun again, because an executor was lost, it
counts from zero, and attempts of the old and the new stage run side by side.

So each attempt draws a number from a counter that the broker keeps: the epoch of the transactional id
`<ledger>-claim-<task>`, which every new producer of that id raises by one. Only the attempt that draws the number after
the one that the driver knows may write. No transaction is ever begun with these ids.
"""

from typing import NamedTuple

from ottla.client.client import Client
from ottla.client.transactions import raise_epoch


class Claim(NamedTuple):
    """Where the counter of a task stood when its batch began; travels to the task."""

    name: str
    producer_id: int
    epoch: int

    def taken(self) -> "Claim":
        return self._replace(epoch=self.epoch + 1)


class ClaimBook:
    """The driver's: the counters of all tasks of one query and topic."""

    def __init__(self, client: Client, ledger: str) -> None:
        self._client = client
        self._ledger = ledger
        self._claims: dict[int, Claim] = {}

    def open(self, tasks: int) -> tuple[Claim, ...]:
        """For the tasks 0 to `tasks` - 1 of a batch."""
        return tuple(self._claims.get(task) or self._drawn(task) for task in range(tasks))

    def settle(self, tasks: list[int]) -> None:
        """The batch is done, and these tasks have written."""
        for task in tasks:
            self._claims[task] = self._claims[task].taken()

    def forget(self) -> None:
        """The batch has failed: nobody knows which attempts have drawn."""
        self._claims.clear()

    def _drawn(self, task: int) -> Claim:
        claim = _draw(self._client, f"{self._ledger}-claim-{task}")
        self._claims[task] = claim
        return claim


def take_claim(client: Client, claim: Claim) -> bool:
    """Whether this attempt may write. To be asked once: a second answer is no. Trouble on the way can make the only
    attempt look like a second one, never the other way round."""
    return _draw(client, claim.name) == claim.taken()


def _draw(client: Client, name: str) -> Claim:
    return Claim(name, *raise_epoch(client, name))
