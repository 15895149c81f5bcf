"""JSON files that tools of Kafka read: a list of partitions, each with something more."""

import json
from typing import Any

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.topic_partition import TopicPartition


def read_json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", USAGE_ERROR) from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not JSON: {error}", USAGE_ERROR) from None


def read_partitions(path: str, *numbers: str) -> dict[TopicPartition, dict[str, Any]]:
    """The entries of `partitions`; each has these numbers. CommandError names what is wrong."""
    document = read_json(path)
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise CommandError(f'{path}: there is no list "partitions"', USAGE_ERROR)
    found: dict[TopicPartition, dict[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or type(entry.get("topic")) is not str:
            raise CommandError(f"{path}: {entry!r} names no topic", USAGE_ERROR)
        for name in ("partition", *numbers):
            if type(entry.get(name)) is not int or not -(2**63) <= entry[name] < 2**63:
                raise CommandError(f"{path}: {entry!r} has no number {name!r}", USAGE_ERROR)
        where = TopicPartition(entry["topic"], entry["partition"])
        if where in found:
            raise CommandError(f"{path}: {where} is named twice", USAGE_ERROR)
        found[where] = entry
    return found
