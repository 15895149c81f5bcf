"""JSON files that tools of Kafka read: a list of partitions, each with something more."""

import json
from typing import Any

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.numbers import INT32_MAX, INT64_MAX
from ottla.topic_partition import TopicPartition

VERSION = 1
"""The only version of these files. A file may leave it out."""


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not UTF-8 text", USAGE_ERROR) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", USAGE_ERROR) from None


def read_json(path: str) -> Any:
    return parse_json(read_text(path), path)


def parse_json(text: str, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source}: not JSON: {error}", USAGE_ERROR) from None


def read_partitions(path: str, *numbers: str) -> dict[TopicPartition, dict[str, Any]]:
    """The entries of `partitions` in a file; each has these numbers. CommandError names what is wrong."""
    return parse_partitions(read_json(path), path, *numbers)


def parse_partitions(document: Any, source: str, *numbers: str) -> dict[TopicPartition, dict[str, Any]]:
    """Like `read_partitions`, for JSON that was read already."""
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise CommandError(f'{source}: there is no list "partitions"', USAGE_ERROR)
    version = document.get("version", VERSION)
    if type(version) is not int or version != VERSION:
        raise CommandError(f"{source}: version {version!r} is not known, only {VERSION}", USAGE_ERROR)
    found: dict[TopicPartition, dict[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or type(entry.get("topic")) is not str:
            raise CommandError(f"{source}: {entry!r} names no topic", USAGE_ERROR)
        if not is_number(entry.get("partition"), 0, INT32_MAX):
            raise CommandError(f"{source}: {entry!r} names no partition from 0 to {INT32_MAX}", USAGE_ERROR)
        for name in numbers:
            if not is_number(entry.get(name), -INT64_MAX - 1, INT64_MAX):
                raise CommandError(f"{source}: {entry!r} has no number {name!r}", USAGE_ERROR)
        where = TopicPartition(entry["topic"], entry["partition"])
        if where in found:
            raise CommandError(f"{source}: {where} is named twice", USAGE_ERROR)
        found[where] = entry
    return found


def is_number(value: object, least: int, most: int) -> bool:
    """Whether this is a whole number within these bounds; true and false are none."""
    return type(value) is int and least <= value <= most
