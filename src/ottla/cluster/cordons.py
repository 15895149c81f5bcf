"""Brokers that get no new replicas, because all their data directories are cordoned (KIP-1066).

A broker registers with what it was started with. Its setting `cordoned.log.dirs` in the metadata overrides that. The
broker itself has checked it: every name in it is one of its directories, and no two are the same.
"""

from ottla.cluster.changes import ConfigResource
from ottla.cluster.image import BrokerImage, Image
from ottla.config import BrokerConfig
from ottla.config.broker import ALL_DIRECTORIES

SETTING = BrokerConfig.table["cordoned.log.dirs"]


def is_cordoned(image: Image, broker: BrokerImage) -> bool:
    text = image.config(ConfigResource.BROKER, str(broker.id)).get(SETTING.name)
    if text is None:
        return broker.cordoned
    names = SETTING.read(text)
    return names == (ALL_DIRECTORIES,) or 0 < len(broker.directories) <= len(names)
