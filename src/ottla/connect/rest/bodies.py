"""What a request carries. Texts, numbers and true or false are all texts in a configuration, as in Kafka Connect.

Kafka Connect answers a body that it cannot read with status 500, and so do we; our message says what is wrong with it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.rest.routing import RestError
from ottla.connect.worker.herder import ConnectorOffset
from ottla.connect.worker.runs import TargetState

BODY_BYTES_MAX: Final = 4 << 20
"""A configuration has kilobytes. More than this is refused before it is read."""

_UNREADABLE: Final = 500
_STATES: Final = {"RUNNING": TargetState.STARTED, "PAUSED": TargetState.PAUSED, "STOPPED": TargetState.STOPPED}


def read_object(body: bytes, *known: str) -> dict[str, Any]:
    """A JSON object. With names it may have no others. Numbers are as they were written, as texts."""
    try:
        document = json.loads(body, parse_float=str, parse_int=str, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair could be stored and never shown
    except (ValueError, RecursionError) as error:
        reason = "The request has no body" if not body.strip() else f"The request body is not JSON: {error}"
        raise RestError(_UNREADABLE, reason) from None
    if not isinstance(document, dict):
        raise RestError(_UNREADABLE, f"The request body is {_name_kind(document)} instead of a JSON object")
    unknown = [name for name in document if known and name not in known]
    if unknown:
        raise RestError(_UNREADABLE, f'Unrecognized field "{unknown[0]}"; known are {", ".join(known)}')
    return document


def read_config(document: object, what: str) -> dict[str, str | None]:
    """The settings of a connector. None is a null that somebody sent."""
    if not isinstance(document, Mapping):
        raise RestError(_UNREADABLE, f"{what} is {_name_kind(document)} instead of a JSON object")
    config: dict[str, str | None] = {}
    for name, value in document.items():
        if isinstance(value, list | dict):
            raise RestError(_UNREADABLE, f"The value of {name} is {_name_kind(value)} instead of a text")
        config[name] = ("true" if value else "false") if isinstance(value, bool) else value
    return config


def read_creation(body: bytes) -> tuple[str, dict[str, str | None], TargetState]:
    """The body of `POST /connectors`: name, configuration and state to begin with."""
    document = read_object(body, "name", "config", "initial_state")
    name = document.get("name")
    config = read_config(document.get("config"), "config")
    state = document.get("initial_state") or "RUNNING"
    if not isinstance(state, str) or state.upper() not in _STATES:
        raise RestError(_UNREADABLE, f"There is no initial_state {state}; there are {', '.join(_STATES)}")
    if not isinstance(name, str | None):
        raise RestError(_UNREADABLE, f"name is {_name_kind(name)} instead of a text")
    return (name or "").strip(), config, _STATES[state.upper()]


def read_offsets(body: bytes) -> list[ConnectorOffset]:
    """The body of `PATCH /connectors/{name}/offsets`. Numbers in it are numbers."""
    read_object(body, "offsets")  # refuses what is not an object
    try:
        entries = json.loads(body).get("offsets")
    except ValueError:
        raise RestError(_UNREADABLE, "The request body has a number that is too long") from None
    if entries is not None and not isinstance(entries, list):
        raise RestError(_UNREADABLE, f"offsets is {_name_kind(entries)} instead of a JSON list")
    if not entries:
        raise RestError(400, "Partitions / offsets need to be provided for an alter offsets request")
    return [_read_offset(entry) for entry in entries]


def _read_offset(entry: object) -> ConnectorOffset:
    if not isinstance(entry, dict) or not entry.keys() <= {"partition", "offset"}:
        raise RestError(_UNREADABLE, "An entry of offsets is a JSON object with partition and offset")
    partition, offset = entry.get("partition"), entry.get("offset")
    if not isinstance(partition, dict | None) or not isinstance(offset, dict | None):
        raise RestError(_UNREADABLE, "partition and offset are JSON objects")
    return ConnectorOffset(partition or {}, offset)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _name_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a Boolean"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "a text or a number"
