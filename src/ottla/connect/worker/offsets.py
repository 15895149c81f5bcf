"""Offsets of sources in the offsets topic, in Kafka Connect's form.

    key      ["<connector>",{<source partition>}]
    value    {<source offset>}, or null if the offset was reset

The key is compared by what it means: the order of the names in a source partition does not matter to a reader. It does
to the broker, which compacts by bytes, so a partition is written with the same order of names as it was found with.
"""

import json
from collections.abc import Mapping
from typing import Any

from ottla.client.client import Client
from ottla.connect.worker.topics import TopicReader, encode_json


def make_offset_key(connector: str, partition: Mapping[str, Any]) -> str:
    """The key of the record that has the offset of a source partition."""
    return encode_json([connector, partition]).decode()


def read_offset_key(key: str) -> tuple[str, Mapping[str, Any]] | None:
    """The connector and the source partition; None for a key that is not in Kafka Connect's form."""
    try:
        found = json.loads(key)
    except ValueError:
        return None
    match found:
        case [str(connector), dict(partition)]:
            return connector, partition
    return None


class SourceOffsets:
    """The offsets of all sources that share an offsets topic, as far as it has been read. One thread at a time."""

    def __init__(self, client: Client, topic: str) -> None:
        self._reader = TopicReader(client, [topic], waits_for_transactions=True)  # those of other connectors
        self._offsets: dict[str, dict[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {}
        """By connector and by what a partition means: its key, the partition and the offset."""

    def refresh(self) -> None:
        """Read to the end of what is committed."""
        for record in self._reader.read():
            found = read_offset_key(record.key)
            if found is None:
                continue
            connector, partition = found
            of_connector = self._offsets.setdefault(connector, {})
            meaning = json.dumps(partition, sort_keys=True)
            if isinstance(record.value, dict):
                of_connector[meaning] = record.key, partition, record.value
            elif record.value is None:
                of_connector.pop(meaning, None)

    def list_offsets(self, connector: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Each source partition that has an offset, and the offset."""
        return [(partition, offset) for _, partition, offset in self._offsets.get(connector, {}).values()]

    def find_key(self, connector: str, partition: Mapping[str, Any]) -> str:
        """The key under which the partition's offset is stored, or is to be stored if it has none."""
        found = self._offsets.get(connector, {}).get(json.dumps(partition, sort_keys=True))
        return make_offset_key(connector, partition) if found is None else found[0]
