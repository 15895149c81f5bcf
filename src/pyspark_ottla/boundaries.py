"""Where a read begins and ends: as the options say it, and as offsets.

In JSON, -2 is the earliest offset of a partition and -1 the latest, as everywhere in Kafka.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.client.client import EARLIEST, LATEST, READ_UNCOMMITTED, Client
from ottla.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]

WORDS = {"earliest": EARLIEST, "latest": LATEST}
INT64_MAX = (1 << 63) - 1


class OptionError(ValueError):
    """An option with an invalid value. The message is one line that begins with the name of the option."""


class Boundary(NamedTuple):
    """The beginning or the end of a read, as the options give it."""

    option: str
    """The name of the option, for error messages."""
    everywhere: int | None = None
    """EARLIEST, LATEST, or a timestamp if `by_time`."""
    each: Mapping[TopicPartition, int] | None = None
    by_time: bool = False
    of_group: bool = False
    """Whether the read begins at the committed offsets of a consumer group."""

    def covering(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The value for each of these partitions. Raises OptionError if it names others, or not all of them."""
        wanted = sorted(partitions)
        if self.each is None:
            assert self.everywhere is not None
            return dict.fromkeys(wanted, self.everywhere)
        missing = [str(where) for where in wanted if where not in self.each]
        unknown = [str(where) for where in sorted(self.each) if where not in set(wanted)]
        if missing:
            raise OptionError(
                f"{self.option}: every partition that is read must be named; missing: {_shorten(missing)}"
                + ("" if self.by_time else " (-2 is the earliest offset, -1 the latest)")
            )
        if unknown:
            raise OptionError(f"{self.option}: {_shorten(unknown)} is not among the partitions that are read")
        return {where: self.each[where] for where in wanted}


def _shorten(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def resolve_boundary(
    boundary: Boundary,
    client: Client,
    partitions: Iterable[TopicPartition],
    *,
    isolation: int = READ_UNCOMMITTED,
    latest_if_none: bool = True,
) -> Offsets:
    """The offsets that a boundary stands for now.

    `latest_if_none`: a timestamp that is newer than all records stands for the end; otherwise it is an OptionError.
    """
    said = boundary.covering(partitions)
    asked = said if boundary.by_time else {where: spec for where, spec in said.items() if spec in WORDS.values()}
    found = {where: answer.offset for where, answer in client.list_offsets(asked, isolation).items()} if asked else {}
    none = {where: LATEST for where, offset in found.items() if offset < 0}
    if none and not latest_if_none:
        where = min(none)
        raise OptionError(
            f"{boundary.option}: {where} has no record at or after {said[where]} "
            "(startingOffsetsByTimestampStrategy=latest would start at its end)"
        )
    if none:
        found.update((where, answer.offset) for where, answer in client.list_offsets(none, isolation).items())
    return {where: found.get(where, spec) for where, spec in said.items()}


# JSON


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Format offsets as Spark stores them in a checkpoint: {"topic": {"0": 123}}."""
    found: dict[str, dict[str, int]] = {}
    for where in sorted(offsets):
        found.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return found


def offsets_from_json(checkpoint: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in checkpoint.items()
        for partition, offset in partitions.items()
    }


def parse_numbers(option: str, text: str, example: str, least: int) -> Offsets:
    """JSON with a number for each partition. Raises OptionError for anything else."""
    found: Offsets = {}
    for topic, partitions in _parse_json_object(option, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{option}: {topic!r} needs an object of partitions, as in {example}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or int(partition) >= 1 << 31:
                raise OptionError(f"{option}: {partition!r} of {topic!r} is no partition, as in {example}")
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= INT64_MAX:
                raise OptionError(f"{option}: {number!r} for {topic}-{partition} is not allowed, as in {example}")
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}'
    found: list[TopicPartition] = []
    for topic, partitions in _parse_json_object(option, text, example).items():
        if not isinstance(partitions, list) or not partitions:
            raise OptionError(f"{option}: {topic!r} needs a list of partitions, as in {example}")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise OptionError(f"{option}: {partition!r} of {topic!r} is no partition, as in {example}")
            found.append(TopicPartition(topic, partition))
    return tuple(sorted(set(found)))


def _parse_json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError(f"{option}: {text!r} is not JSON, as in {example}") from None
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{option}: {text!r} is not a JSON object with at least one topic, as in {example}")
    return found
