"""The data directory of a broker that ran alone, when the broker joins a cluster as the first of its members.

Its metadata is a log in the first data directory. It becomes the beginning of the cluster's metadata, and the directory
of that log is renamed, so that no broker ever takes it for the newest again.
"""

import logging
from dataclasses import replace

from ottla.cluster.embedded import DIRECTORY, EmbeddedLog
from ottla.cluster.image import EMPTY, Image
from ottla.storage.directories import DataDirectory
from ottla.storage.files import Disk
from ottla.system.clock import Clock
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)

EPOCH = 0
"""The epoch of the broker in the metadata that is brought along. Any registration in the cluster has a later one."""

RETIRED = f"{DIRECTORY}.imported"


def is_single_broker(disk: Disk, directory: DataDirectory) -> bool:
    """Whether the directory holds the metadata of a broker that ran alone."""
    path = f"{directory.path}/{DIRECTORY}"
    return disk.exists(path) and bool(disk.list(path))


async def read_metadata(disk: Disk, directory: DataDirectory, offload: Offload, clock: Clock) -> Image:
    """The metadata of the broker that ran alone. DamagedMetadata if entries of it are lost."""
    log = EmbeddedLog(disk, directory.path, offload, clock, clean=directory.was_clean)
    try:
        image = EMPTY
        for entry in await log.read(0):
            image = (EMPTY if entry.snapshot else image).replay(entry.version, entry.changes)
        # Epochs begin anew with the versions of the cluster's log, and the cluster elects a controller of its own.
        brokers = image.brokers.update({id: replace(image.brokers[id], epoch=EPOCH) for id in sorted(image.brokers)})
        return replace(image, brokers=brokers, controller=None)
    finally:
        log.close()


def retire_metadata(disk: Disk, directory: DataDirectory) -> None:
    """The metadata is in the store: keep the local log under another name."""
    target = f"{directory.path}/{RETIRED}"
    logger.info("the metadata of the broker that ran alone is kept in %s", target)
    disk.rename(f"{directory.path}/{DIRECTORY}", target)
    disk.fsync_directory(directory.path)
