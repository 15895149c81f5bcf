"""The number of a broker of a cluster: given by its settings, kept in its data directories, or taken from the store."""

import logging
from collections.abc import Sequence
from random import Random

from ottla.cluster.broker_ids import generate_broker_id
from ottla.cluster.store import Store
from ottla.config import BrokerConfig, ConfigError
from ottla.storage.directories import DataDirectory

logger = logging.getLogger(__name__)


async def choose_node_id(
    config: BrokerConfig, directories: Sequence[DataDirectory], store: Store, random: Random
) -> BrokerConfig:
    """The settings with the number of this broker, as Apache Kafka with ZooKeeper chooses it.

    A number that was generated is kept in meta.properties. ConfigError if there is none and none may be generated, or
    if the given one is in the range of those that are generated.
    """
    kept = next((each.identity.node_id for each in directories if each.identity), None)
    generates, reserved_max = config.broker_id_generation_enable, config.reserved_broker_max_id
    if config.is_node_id_given:
        if generates and config.node_id > reserved_max and config.node_id != kept:
            raise ConfigError(
                f"node.id: {config.node_id} is above reserved.broker.max.id ({reserved_max}), and larger numbers are "
                f"for brokers without one; raise that setting, or set broker.id.generation.enable=false"
            )
        return config
    if kept is None and not generates:
        raise ConfigError("node.id: this broker of a cluster needs a number (--node-id), because none is generated")
    node_id = await generate_broker_id(store, reserved_max, random) if kept is None else kept
    logger.info("this broker has the number %d, %s", node_id, "which is new" if kept is None else "as before")
    return config.with_changes({"node.id": str(node_id), "broker.id": None})
