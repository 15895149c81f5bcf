"""The parts of this broker, typed: what a handler may use. `broker.py` builds them and stops them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from ottla.broker.faults import Faults
from ottla.cluster.auto_creation import AutoTopicCreation
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.producer_ids import ProducerIds
from ottla.cluster.recently_fenced import RecentlyFenced
from ottla.cluster.withdrawal import withdraw
from ottla.config import BrokerConfig
from ottla.coordinators.groups.coordinator import GroupCoordinator
from ottla.coordinators.transactions.admission import TransactionAdmission
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.peers import LocalMarkers
from ottla.observability.metrics import RequestMeters, StoreMeter
from ottla.quotas.quotas import Quotas
from ottla.replication.assembly import Replication
from ottla.replication.compaction import Compaction
from ottla.replication.fetch_sessions import FetchSessions
from ottla.replication.record_checks import RecordChecks
from ottla.replication.replicas import Replicas
from ottla.system.clock import Clock

if TYPE_CHECKING:
    from ottla.security.authorizer import Authorizer
    from ottla.telemetry.telemetry import Telemetry


@dataclass(slots=True)
class Node:
    broker_id: int
    config: BrokerConfig
    clock: Clock
    random: Random
    metadata: Metadata
    recently_fenced: RecentlyFenced
    replication: Replication
    auto_creation: AutoTopicCreation
    replicas: Replicas
    """The partitions of `replication`, kept here because most handlers need nothing else from it."""
    compaction: Compaction
    record_checks: RecordChecks
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    markers: LocalMarkers
    admission: TransactionAdmission
    quotas: Quotas
    telemetry: "Telemetry | None"
    """Metrics that clients push. None: there is no metrics page that could show them."""
    apis: Mapping[int, range]
    """API key -> supported versions."""
    authorizer: "Authorizer | None" = None
    """Decides what clients may do. None: everybody may do everything."""
    catch_up: Callable[[], Awaitable[None]] | None = None
    """Replays what other brokers have changed in the metadata, before a client is told that something is unknown. None
    on a broker that is alone: nobody else changes anything."""
    is_connected: Callable[[], bool] = lambda: True
    """Whether this broker can reach the store of the metadata, and so would know if others led its partitions."""
    store_meter: StoreMeter = field(default_factory=StoreMeter)
    check_listeners: Callable[[BrokerConfig], Awaitable[None]] | None = None
    """Tries the certificates of other settings. ConfigError if they cannot be used."""
    faults: Faults | None = None
    request_meters: RequestMeters = field(default_factory=RequestMeters)

    @property
    def image(self) -> Image:
        """The metadata as clients may see it.

        A broker that is out of the cluster does not know whom the others have elected, but it knows that it leads
        nothing. A client that is told so asks another broker.
        """
        image = self.metadata.image
        return image if self.replication.reconciliation.is_active else withdraw(image, self.broker_id)
