"""The file that says which topic a partition's directory belongs to: `partition.metadata`, two lines of text.

version: 0
topic_id: the 16 bytes in base64url, without padding
"""

import base64
import binascii

from ottla.storage import names
from ottla.storage.files import Disk

NO_TOPIC_ID = bytes(16)
_PREFIX = "topic_id: "


def encode(topic_id: bytes) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).decode("ascii").rstrip("=")
    return f"version: 0\n{_PREFIX}{text}".encode("ascii")


def write_topic_id(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Write the file without fsync: the log's first flush syncs it before anything else in the directory counts."""
    file = disk.open(f"{directory}/{names.METADATA}", create=True)
    try:
        if file.size:
            file.truncate(0)
        file.append(encode(topic_id))
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: str) -> bytes:
    """The topic id; all zeros if there is no such file or it is damaged. No topic has that id."""
    try:
        lines = disk.read(f"{directory}/{names.METADATA}").decode("ascii").splitlines()
        text = next(line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX))
        topic_id = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (FileNotFoundError, ValueError, StopIteration, binascii.Error):
        return NO_TOPIC_ID
    return topic_id if len(topic_id) == len(NO_TOPIC_ID) else NO_TOPIC_ID
