"""What was promised to producers, and how much trouble the promise covers.

A record is acknowledged when it is below the high watermark. It must never be lost while fewer machines than
min.insync.replicas are lossy: a machine is lossy from the moment at which it lost data, or may have, until it is in
sync again. Who asks for an unclean election, or takes replicas away, gives up what depended on them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.simulation.metadata.machines import Machine, Record, Where


@dataclass(slots=True)
class Promise:
    """The acknowledged records of a partition by offset, each with the number of lossy machines that is too many."""

    records: dict[int, tuple[Record, int]] = field(default_factory=dict)
    lossy: set[int] = field(default_factory=set)
    excused_epoch: int = -1
    """What leaders of earlier epochs acknowledge is not promised: an unclean election may have ended it."""


class Ledger:
    def __init__(self) -> None:
        self.promises: dict[Where, Promise] = {}
        self.acknowledged = 0

    def of(self, where: Where) -> Promise:
        return self.promises.setdefault(where, Promise())

    def acknowledge(self, where: Where, start: int, records: Iterable[Record], needed: int, leader_epoch: int) -> None:
        promise = self.of(where)
        if leader_epoch < promise.excused_epoch:
            return
        for offset, record in enumerate(records, start):
            if offset not in promise.records and len(promise.lossy) < needed:
                promise.records[offset] = (record, needed)
                self.acknowledged += 1

    def taint(self, where: Where, broker_id: int) -> None:
        """The broker may have lost records of the partition."""
        promise = self.of(where)
        promise.lossy.add(broker_id)
        self.limit(where, None)

    def restore(self, where: Where, in_sync: Iterable[int]) -> None:
        """These brokers have every committed record again."""
        self.of(where).lossy.difference_update(in_sync)

    def limit(self, where: Where, complete: int | None) -> None:
        """Give up records that too many lossy machines may have had; `complete`: how many replicas have them now."""
        promise = self.of(where)
        kept = {}
        for offset, (record, needed) in promise.records.items():
            lower = needed if complete is None else min(needed, complete)
            if len(promise.lossy) < lower:
                kept[offset] = (record, lower)
        promise.records = kept

    def excuse(self, where: Where, leader_epoch: int) -> None:
        """An unclean election was asked for."""
        promise = self.of(where)
        promise.records = {}
        promise.excused_epoch = leader_epoch

    def forget(self, where: Where) -> None:
        self.promises.pop(where, None)

    def find_missing(self, where: Where, broker_id: int, machines: Mapping[int, Machine]) -> str | None:
        """What a replica lacks of the acknowledged records, or None."""
        promise = self.of(where)
        replica = machines[broker_id].replicas.get(where)
        records = replica.records if replica is not None else []
        for offset, (record, needed) in promise.records.items():
            if offset >= len(records) or records[offset] != record:
                return f"{record} at offset {offset}; lossy {sorted(promise.lossy)}, {needed} would excuse it"
        return None
