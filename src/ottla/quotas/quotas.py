"""All quotas of a broker, following the metadata."""

from collections.abc import Callable, Mapping

from ottla.cluster.changes import QuotaName
from ottla.cluster.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.config import BrokerConfig
from ottla.quotas.addresses import AddressRates
from ottla.quotas.client_quota import ClientQuota
from ottla.quotas.rates import Windows
from ottla.quotas.table import QuotaTable


class Quotas:
    """What each kind of quota counts: bytes of Produce requests, bytes of records in Fetch answers, percent of a
    processor, partitions that are created or deleted, connections of an address."""

    def __init__(self, config: BrokerConfig, now: Callable[[], float]) -> None:
        """`now`: the event loop's clock, in seconds."""
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self.produce = ClientQuota(windows, now)
        self.fetch = ClientQuota(windows, now)
        self.request = ClientQuota(windows, now, throttle_ms_max=windows.ms)
        self.controller_mutation = ClientQuota(mutations, now)
        self.connections = AddressRates(windows, now)
        self.on_change: Callable[[], None] | None = None
        """Called when quotas of another kind than before are in force."""

    @property
    def clients(self) -> Mapping[str, ClientQuota]:
        return {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.controller_mutation,
        }

    def follow(self, quotas: Mapping[tuple[QuotaName, ...], Mapping[str, float]]) -> None:
        """Apply the quotas of the metadata."""
        before = self._find_active()
        for key, quota in self.clients.items():
            quota.follow(QuotaTable.of(quotas, key))
        self.connections.follow(quotas)
        if self.on_change is not None and self._find_active() != before:
            self.on_change()

    def _find_active(self) -> list[bool]:
        return [quota.is_active for quota in self.clients.values()]

    async def expire(self) -> None:
        """Forget clients that are gone."""
        for quota in self.clients.values():
            quota.expire()
        self.connections.expire()
