"""Builds the response to a request that is refused as a whole, for any API.

If the response has an error code of its own in this version, that is enough. Otherwise the response mirrors the
request: each topic, partition, resource or group in the request comes back with the error. Requests and responses use
the same names for the same things, except for the aliases below. Both are in their newest shape (`shapes`).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.wire.frames import Api
from ottla.wire.message import Field, Message, fields_of, structure_of

# The lists of the request that a list of the response answers, if they have different names.
_LIST_SOURCES: Final[dict[str, tuple[str, ...]]] = {
    "coordinators": ("coordinator_keys",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "resources"),
    "results": ("creations", "resources", "topics", "dirs.topics", "groups_names", "deletions", "upsertions", "users"),
    "results_by_partition": ("partitions",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "transaction_states": ("transactional_ids",),
}

# The fields that identify an item. Only these are copied to the response.
_IDENTITIES: Final = frozenset(
    [
        "entity_name",
        "entity_type",
        "group_id",
        "index",
        "log_dir",
        "name",
        "partition",
        "partition_id",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "topic_name",
        "transactional_id",
        "user",
    ]
)

# Fields of an item that have another name in the response.
_VALUE_SOURCES: Final = {"partition_index": ("partition", "index"), "topic_name": ("name",), "user": ("name",)}

# The field of the response for an item that is just a string or a number.
_KEYS: Final = ("key", "group_id", "transactional_id", "partition_index", "partition_id")

# Unknown offsets, nodes and times: the default of the protocol, 0, would be taken for a real one.
_UNKNOWN: Final = dict.fromkeys(
    (
        "node_id",
        "port",
        "base_offset",
        "committed_offset",
        "low_watermark",
        "issue_timestamp_ms",
        "expiry_timestamp_ms",
        "max_timestamp_ms",
    ),
    -1,
)

# DescribeLogDirs 1 and 2 answer per data directory, which requests do not name: one entry carries the error.
_ANSWERED_ONCE: Final = ("DescribeLogDirsResponse", "results")

# Few clients look at the error code of Metadata 13. The others are as in Kafka.
_MIRRORED_TOO: Final = ("Metadata", "ElectLeaders", "DescribeUserScramCredentials")

# OffsetFetch 1 has no error code per group: each partition carries the error.
_ERRORS_OF_LEAVES_BELOW: Final = {"OffsetFetch": 2}


def refuse(api: Api, version: int, request: Message, code: ErrorCode, message: str | None = None) -> Message:
    """The response that answers everything in `request` with `code`."""
    response = api.response()
    leaves = version < _ERRORS_OF_LEAVES_BELOW.get(api.name, 0)
    _set_unknown(response)
    _set_error(response, code, message)
    has_own = any(field.name == "error_code" and field.is_in(version) for field in fields_of(api.response))
    if not has_own or api.name in _MIRRORED_TOO:
        _mirror(request, response, code, message, leaves)
    return response


def _mirror(source: Any, target: Message, code: ErrorCode, message: str | None, leaves: bool) -> None:
    """Fill the lists of `target` whose elements can carry the error, from the items of `source`."""
    for field in fields_of(type(target)):
        if not (field.is_array and field.is_structure):
            continue
        element_class = structure_of(type(target), field.element)
        if not _carries_error(element_class):
            continue
        if (type(target).__name__, field.name) == _ANSWERED_ONCE:
            items: list[Any] = [None]
        else:
            items = _find_items(source, field)
        setattr(target, field.name, [_build_element(item, element_class, code, message, leaves) for item in items])


def _build_element(
    item: Any, element_class: type[Message], code: ErrorCode, message: str | None, leaves: bool
) -> Message:
    element = element_class()
    _set_unknown(element)
    has_error = _set_error(element, code, message)
    if not isinstance(item, Message):
        key = next((name for name in _KEYS if hasattr(element, name)), None)
        if key is not None:
            setattr(element, key, item)
        return element
    for field in fields_of(element_class):
        _copy(item, element, field)
    if leaves or not has_error:
        _mirror(item, element, code, message, leaves)
    return element


def _copy(item: Message, element: Message, field: Field) -> None:
    """Copy what identifies the item: plain values, and lists of structures that have no error code themselves."""
    if field.is_array:
        nested = structure_of(type(element), field.element) if field.is_structure else None
        if nested is not None and not _carries_error(nested) and isinstance(getattr(item, field.name, None), list):
            copies = [nested(**_shared_values(each, nested)) for each in getattr(item, field.name)]
            setattr(element, field.name, copies)
        return
    if field.name in _IDENTITIES:
        names = (field.name, *_VALUE_SOURCES.get(field.name, ()))
        name = next((name for name in names if hasattr(item, name)), None)
        if name is not None:
            setattr(element, field.name, getattr(item, name))


def _shared_values(source: Message, target_class: type[Message]) -> dict[str, Any]:
    return {row[0]: getattr(source, row[0]) for row in target_class.FIELDS if hasattr(source, row[0])}


def _find_items(source: Any, field: Field) -> list[Any]:
    found: list[Any] = []
    for path in _LIST_SOURCES.get(field.name, (field.name,)):
        found += _follow_path(source, path.split("."))
    return found


def _follow_path(source: Any, path: list[str]) -> list[Any]:
    items = getattr(source, path[0], None) or []
    if len(path) == 1:
        return list(items)
    return [below for item in items for below in _follow_path(item, path[1:])]


def _set_unknown(target: Message) -> None:
    for name, value in _UNKNOWN.items():
        if hasattr(target, name):
            setattr(target, name, value)


def _set_error(target: Message, code: ErrorCode, message: str | None) -> bool:
    names = [row[0] for row in target.FIELDS if row[0] in ("error_code", "partition_error_code")]
    for name in names:
        setattr(target, name, code)
    if message and names and hasattr(target, "error_message"):
        setattr(target, "error_message", message)  # noqa: B010 - only some messages have it
    return bool(names)


def _carries_error(message_class: type[Message]) -> bool:
    """Whether the class or a structure below it has an error code."""
    for field in fields_of(message_class):
        if field.name in ("error_code", "partition_error_code"):
            return True
        if field.is_structure and _carries_error(structure_of(message_class, field.element)):
            return True
    return False
