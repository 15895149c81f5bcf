"""Builds the coordinators of a broker and keeps them in step with the metadata."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ottla.cluster.changes import Change, DeleteTopic
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.producer_ids import ProducerIds
from ottla.config import BrokerConfig
from ottla.coordinators.groups.coordinator import GroupCoordinator
from ottla.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordinators.machine import Meters
from ottla.coordinators.runtime import CoordinatorContext
from ottla.coordinators.transactions.admission import TransactionAdmission
from ottla.coordinators.transactions.coordinator import TransactionCoordinator
from ottla.coordinators.transactions.errands import TransactionErrands
from ottla.coordinators.transactions.peers import LocalCoordinator, LocalMarkers
from ottla.replication.replicas import Replicas
from ottla.system.clock import Clock
from ottla.system.threads import Offload

if TYPE_CHECKING:
    from ottla.coordinators.transactions.remote_peers import ClusterCoordinators, ClusterMarkers, Peers


class Coordinators:
    def __init__(
        self,
        broker_id: int,
        metadata: Metadata,
        replicas: Replicas,
        producer_ids: ProducerIds,
        clock: Clock,
        random: Random,
        offload: Offload,
        config: Callable[[], BrokerConfig],
        peers: "Peers | None" = None,
    ) -> None:
        """`peers`: the connections to the other brokers of the cluster; None if this broker is alone. It does not even
        import what reaches others then."""
        self.producer_ids = producer_ids
        self.meters = Meters.fresh()
        is_member = peers is not None
        context = CoordinatorContext(
            broker_id, metadata, replicas, clock, random, offload, config, self.meters, is_member
        )
        self.internal_topics = {
            topic.name: partial(topic.create, is_member=is_member) for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
        }
        """Decides how each internal topic is created."""
        self.groups = GroupCoordinator(context)
        self.markers = LocalMarkers(broker_id, replicas, self.groups, clock)
        self._remote_markers: ClusterMarkers | None = None
        self._remote_coordinators: ClusterCoordinators | None = None
        if peers is not None:
            from ottla.coordinators.transactions import remote_peers

            self._remote_markers = remote_peers.ClusterMarkers(
                broker_id, self.markers, peers, config, lambda: metadata.image
            )
        errands = TransactionErrands(
            self._remote_markers or self.markers, producer_ids, lambda: metadata.image, self.meters.transactions
        )
        self.transactions = TransactionCoordinator(context, producer_ids, errands.perform)
        local = LocalCoordinator(broker_id, self.transactions)
        if peers is not None:
            self._remote_coordinators = remote_peers.ClusterCoordinators(broker_id, local, peers, config)
        self.admission = TransactionAdmission(self.transactions, self._remote_coordinators or local)

    def follow(self, image: Image) -> None:
        """Coordinate every partition of the internal topics that this broker leads."""
        self.groups.follow(image)
        self.transactions.follow(image)

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """Follow a change of the metadata. The replicas must have followed it already."""
        self.groups.apply(before, after)
        self.transactions.apply(before, after)
        names = [before.topic_names.get(change.topic_id) for change in changes if isinstance(change, DeleteTopic)]
        if self._remote_markers is not None and self._remote_coordinators is not None:
            self._remote_markers.follow(after)
            self._remote_coordinators.follow(after)
        deleted = [name for name in names if name is not None]
        if deleted:
            self.groups.delete_offsets_of_topics(deleted)

    def stop(self) -> None:
        """Stop coordinating. Requests that wait fail with NOT_COORDINATOR."""
        self.groups.stop()
        self.transactions.stop()
        if self._remote_markers is not None and self._remote_coordinators is not None:
            self._remote_markers.stop()
            self._remote_coordinators.stop()
