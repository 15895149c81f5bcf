"""The metadata log of a data directory, read without a broker: topics, their ids and settings."""

from ottla.cluster.image import Image
from ottla.cluster.metadata_files import DamagedMetadata, read_entries, recover
from ottla.cluster.replay import ReplayError
from ottla.storage.files import Disk
from ottla.storage.overlay import OverlayDisk

__all__ = ["DamagedMetadata", "read_image"]


def read_image(disk: Disk, directory: str, *, clean: bool) -> Image:
    """The newest image, read as a broker would at its start, but nothing is changed. DamagedMetadata if it cannot be.

    `clean` if the broker was shut down cleanly: then not even the last entry may be torn.
    """
    overlay = OverlayDisk(disk)
    head = recover(overlay, directory, clean=clean).head
    image = Image()
    try:
        for entry in read_entries(overlay, directory, 0, head):
            image = (Image() if entry.snapshot else image).replay(entry.version, entry.changes)
    except ReplayError as error:
        raise DamagedMetadata(f"{directory}: {error}") from None
    return image
