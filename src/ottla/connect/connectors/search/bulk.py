"""The body of a bulk request, and what its answer says about each record.

A document's id is the key of its record, and its version is the offset. A write that is repeated, or older than what
the index has, gets the status 409: it was done already. Without keys the id has the offset in it, and a repetition
writes the same document again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.connect.data.record import Record
from ottla.connect.errors import ConnectError, RecordError, RetriableError

INDEX_LENGTH_MAX: Final = 255
ID_BYTES_MAX: Final = 512
_LINE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True)
class Operation:
    record: Record
    is_versioned: bool
    lines: bytes
    """What the request has of it."""


def name_index(topic: str) -> str:
    """The index of a topic: in lower case, without a sign at its beginning that indices may not have."""
    name = topic.lower().lstrip("-_")[:INDEX_LENGTH_MAX]
    return {"": "index", ".": "dot", "..": "dotdot"}.get(name, name)


def make_id(record: Record, is_key_ignored: bool) -> str:
    """RecordError if the key cannot be one."""
    if is_key_ignored:
        return f"{record.topic}+{record.partition}+{record.offset}"
    match record.key:
        case bool() | None:
            raise RecordError("the record has no key that could be a document's id; key.ignore=true makes ids")
        case str() | int():
            found = str(record.key)
        case _:
            raise RecordError(f"a key of type {type(record.key).__name__} cannot be a document's id")
    if not found or len(found.encode()) > ID_BYTES_MAX:
        raise RecordError(f"the key has {len(found.encode())} bytes, and a document's id has 1 to {ID_BYTES_MAX}")
    return found


def make_operation(record: Record, document: bytes | None, is_key_ignored: bool, is_upsert: bool) -> Operation:
    """Without a document the one of the record's id is deleted. RecordError if the record cannot be a document."""
    if document is not None and document[:1] != b"{":
        raise RecordError("the value is no struct and no map, so it cannot be a document")
    is_versioned = not is_key_ignored and not is_upsert
    meta: dict[str, Any] = {"_index": name_index(record.topic), "_id": make_id(record, is_key_ignored)}
    if is_versioned:
        meta |= {"version": record.offset, "version_type": "external"}
    if document is None:
        return Operation(record, is_versioned, _LINE({"delete": meta}).encode() + b"\n")
    if is_upsert:
        meta["retry_on_conflict"] = 5
        head, body = {"update": meta}, b'{"doc":' + document + b',"doc_as_upsert":true}'
    else:
        head, body = {"index": meta}, document
    return Operation(record, is_versioned, _LINE(head).encode() + b"\n" + body + b"\n")


def cut(operations: Sequence[Operation], count_max: int, bytes_max: int) -> Iterator[Sequence[Operation]]:
    """The operations of each request. `bytes_max` below 0 is no limit."""
    taken: list[Operation] = []
    size = 0
    for each in operations:
        is_full = len(taken) >= count_max or (bytes_max >= 0 and size + len(each.lines) > bytes_max)
        if taken and is_full:
            yield taken
            taken, size = [], 0
        taken.append(each)
        size += len(each.lines)
    if taken:
        yield taken


def list_malformed(operations: Sequence[Operation], answer: Mapping[str, Any]) -> list[tuple[Record, str]]:
    """The records that the cluster does not take, with its reasons.

    RetriableError if it could not write some now, ConnectError if it never will.
    """
    if not answer.get("errors"):
        return []
    found = []
    for operation, item in zip(operations, answer["items"], strict=True):
        [(kind, result)] = item.items()
        status, error = result["status"], result.get("error") or {}
        if status < 300 or (kind == "delete" and status == 404 and not error):
            continue
        if status == 409 and operation.is_versioned:
            continue
        text = f"{name_index(operation.record.topic)}: {error.get('type')}: {error.get('reason')} (status {status})"
        if status in (408, 409, 429) or status >= 500 or error.get("type") == "cluster_block_exception":
            raise RetriableError(f"the search cluster could not write a document to {text}")
        if status != 400:
            raise ConnectError(f"the search cluster does not write documents to {text}")
        cause = error.get("caused_by") or {}
        found.append((operation.record, f"{text}{': ' if cause else ''}{cause.get('reason', '')}"))
    return found
