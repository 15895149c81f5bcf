"""Collects the metrics of the coordinators: groups, their members and offsets, transactions."""

from collections import Counter
from collections.abc import Iterator
from itertools import product

from ottla.broker.node import Node
from ottla.coordinators.transactions.transaction import STORED
from ottla.observability import catalogue
from ottla.observability.metrics import PAUSE_EVERY, FamilySeries

CLASSIC, CONSUMER = "classic", "consumer"


class CoordinatorCollector:
    """Counts over all groups and transactional ids that this broker coordinates."""

    def __init__(self, node: Node) -> None:
        self._groups, self._transactions = node.groups, node.transactions
        self.groups = Counter(dict.fromkeys(product((CLASSIC, CONSUMER), ("Empty", "Stable")), 0))
        """The number of groups by protocol and state. Empty and Stable are reported even if no group is in them."""
        self.members = Counter({CLASSIC: 0, CONSUMER: 0})
        self.offsets = 0
        self.transactional_ids = Counter(dict.fromkeys(sorted(STORED), 0))

    def collect(self) -> Iterator[str]:
        walked = 0
        for machine in self._groups.machines():
            for group in list(machine.groups.values()):
                self.groups[group.kind, group.state_name] += 1
                self.members[group.kind] += group.size
                offsets = machine.offsets.find_group(group.id)
                self.offsets += 0 if offsets is None else offsets.count
                walked += 1
                if walked % PAUSE_EVERY == 0:
                    yield ""
        for transactions in self._transactions.machines():
            for transaction in list(transactions.by_id.values()):
                self.transactional_ids[transaction.state] += 1
                walked += 1
                if walked % PAUSE_EVERY == 0:
                    yield ""

    def metrics(self) -> Iterator[FamilySeries]:
        yield from self._read_groups()
        yield from self._read_transactions()
        yield (
            catalogue.COORDINATED_PARTITIONS,
            [
                (("group", "active"), len(self._groups.machines())),
                (("group", "loading"), self._groups.loading_count),
                (("transaction", "active"), len(self._transactions.machines())),
                (("transaction", "loading"), self._transactions.loading_count),
            ],
        )
        operations: list[tuple[tuple[str, str], int]] = []
        for name, coordinator in (("group", self._groups), ("transaction", self._transactions)):
            operations += [((name, operation), count) for operation, count in coordinator.operations.items()]
        yield catalogue.COORDINATOR_OPERATIONS, operations

    def _read_groups(self) -> Iterator[FamilySeries]:
        meter = self._groups.meters.groups
        yield catalogue.GROUPS, sorted(self.groups.items())
        classic = {state: count for (kind, state), count in self.groups.items() if kind == CLASSIC}
        yield catalogue.ALL_GROUPS, [((), sum(classic.values()))]
        yield catalogue.PREPARING_GROUPS, [((), classic.get("PreparingRebalance", 0))]
        yield catalogue.COMPLETING_GROUPS, [((), classic.get("CompletingRebalance", 0))]
        yield catalogue.STABLE_GROUPS, [((), classic["Stable"])]
        yield catalogue.EMPTY_GROUPS, [((), classic["Empty"])]
        yield catalogue.OFFSETS, [((), self.offsets)]
        yield catalogue.MEMBERS, [((kind,), count) for kind, count in self.members.items()]
        yield catalogue.OFFSETS_COMMITTED, [((), meter.offsets_committed)]
        yield catalogue.OFFSETS_EXPIRED, [((), meter.offsets_expired)]
        yield catalogue.OFFSETS_DELETED, [((), meter.offsets_deleted)]
        yield catalogue.CLASSIC_REBALANCES, [((), sum(meter.classic_rebalances.counts))]
        yield catalogue.CONSUMER_REBALANCES, [((), meter.epochs_raised)]
        yield (
            catalogue.REBALANCE_TIME,
            [
                ((CLASSIC,), meter.classic_rebalances.durations()),
                ((CONSUMER,), meter.consumer_rebalances.durations()),
            ],
        )
        yield catalogue.GROUPS_LOAD_TIME, [((), round(self._groups.longest_load_s * 1000))]

    def _read_transactions(self) -> Iterator[FamilySeries]:
        meter = self._transactions.meters.transactions
        yield catalogue.TRANSACTIONAL_IDS, [((state.shown,), count) for state, count in self.transactional_ids.items()]
        yield (
            catalogue.TRANSACTIONS_ENDED,
            [
                (("committed",), meter.committed),
                (("aborted",), meter.aborted),
                (("timed out",), meter.timed_out),
                (("fenced",), meter.fenced),
            ],
        )
        yield catalogue.MARKER_TIME, [((), meter.markers.durations())]
        yield catalogue.WAITING_MARKERS, [((), meter.waiting_markers)]
        yield catalogue.TRANSACTIONS_LOAD_TIME, [((), round(self._transactions.longest_load_s * 1000))]
