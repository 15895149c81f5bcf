"""The messages between a store in memory and brokers in child processes, as lines of JSON.

    to the store      {"number": 7, "request": "get", "path": "/ottla/head", "watch": 3}
                      {"number": 8, "request": "commit", "operations": [["SetData", "/ottla/head", "MTI=", 4], ...]}
                      {"request": "heartbeat"}
    from the store    {"number": 7, "result": ["MTE=", 4, 0]}
                      {"number": 8, "error": ["BadVersion", "message", "/ottla/head"]}
                      {"watch": 3}      {"state": "suspended"}

A connection is a session. Its first line is {"open": name}; the answer is the session's id and time-out, or an error.
Requests have the names of the methods of `StoreSession`. Bytes are in base64.
"""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cluster import store
from ottla.cluster.store import Check, Create, Delete, Operation, SetData, StoreError

LINE_BYTES_MAX = 64 << 20

Message = Mapping[str, Any]


def write_message(writer: asyncio.StreamWriter, message: Message) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None at the end of the connection."""
    try:
        line = await reader.readline()
    except OSError:
        return None
    return json.loads(line) if line.endswith(b"\n") else None


def encode_bytes(data: bytes) -> str:
    return b64encode(data).decode()


def decode_bytes(text: str) -> bytes:
    return b64decode(text)


def encode_operations(operations: Sequence[Operation]) -> list[list[Any]]:
    encoded: list[list[Any]] = []
    for operation in operations:
        match operation:
            case Create(path, data, ephemeral):
                encoded.append(["Create", path, encode_bytes(data), ephemeral])
            case SetData(path, data, version):
                encoded.append(["SetData", path, encode_bytes(data), version])
            case Delete(path, version) | Check(path, version):
                encoded.append([type(operation).__name__, path, version])
    return encoded


def decode_operations(encoded: Sequence[Sequence[Any]]) -> list[Operation]:
    operations: list[Operation] = []
    for kind, path, *rest in encoded:
        match kind:
            case "Create":
                operations.append(Create(path, decode_bytes(rest[0]), rest[1]))
            case "SetData":
                operations.append(SetData(path, decode_bytes(rest[0]), rest[1]))
            case "Delete":
                operations.append(Delete(path, rest[0]))
            case _:
                operations.append(Check(path, rest[0]))
    return operations


def encode_error(error: StoreError) -> list[str]:
    return [type(error).__name__, str(error), error.path]


def decode_error(encoded: Sequence[str]) -> StoreError:
    kind, message, path = encoded
    error: StoreError = getattr(store, kind)(message, path)
    return error
