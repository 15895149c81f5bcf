"""The coordinators of this broker, put together and kept in step with the metadata."""

from collections.abc import Callable, Sequence
from random import Random

from ottla.cluster.changes import Change, DeleteTopic
from ottla.cluster.image import Image
from ottla.cluster.metadata import Metadata
from ottla.cluster.producer_ids import ProducerIds
from ottla.config import BrokerConfig
from ottla.coordinators.formats import GROUP_FORMAT, TRANSACTION_FORMAT
from ottla.coordinators.groups.errands import GroupErrands
from ottla.coordinators.groups.machine import Groups
from ottla.coordinators.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.coordinators.machine import Meters
from ottla.coordinators.runtime import Coordinator, Surroundings
from ottla.coordinators.transactions.machine import Transactions
from ottla.coordinators.transactions.markers import Markers
from ottla.replication.replicas import Replicas
from ottla.system.clock import Clock
from ottla.system.threads import Offload


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
    ) -> None:
        self.producer_ids = producer_ids
        self.meters = Meters.fresh()
        around = Surroundings(broker_id, metadata, replicas, clock, random, offload, config, self.meters)
        self.groups = Coordinator(OFFSETS_TOPIC, GROUP_FORMAT, Groups, around)
        self.transactions = Coordinator(TRANSACTIONS_TOPIC, TRANSACTION_FORMAT, Transactions, around)
        self.markers = Markers(
            replicas, self.groups, producer_ids, clock, lambda: metadata.image, self.meters.transactions
        )
        self.transactions.perform = self.markers.perform
        self.groups.perform = GroupErrands(offload).perform

    def follow(self, image: Image) -> None:
        """Coordinate what this broker leads."""
        self.groups.follow(image)
        self.transactions.follow(image)

    def apply(self, before: Image, after: Image, changes: Sequence[Change]) -> None:
        """The metadata changed, and the replicas with it."""
        self.groups.apply(before, after)
        self.transactions.apply(before, after)
        names = [before.topic_names.get(change.topic_id) for change in changes if isinstance(change, DeleteTopic)]
        deleted = [name for name in names if name is not None]
        if deleted:
            self.groups.tell_all(lambda groups, turn: groups.topics_deleted(deleted, turn))

    def stop(self) -> None:
        """Those who wait are sent to look for another coordinator."""
        self.groups.stop()
        self.transactions.stop()
