"""Messages as records, in the schemas of Confluent's JMS source, and records as frames of STOMP.

STOMP has no types of properties: they are all texts. ActiveMQ Classic sends map messages as JSON, and text messages in
the UTF-8 of Java, which has two characters of three bytes for one of four.
"""

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.connectors.jms.session import Frame
from ottla.connect.converters.choice import make_converter
from ottla.connect.data.java_text import to_connect_text
from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type
from ottla.connect.errors import RecordError

_NAME: Final = "io.confluent.connect.jms."
_TEXT: Final = Schema(Type.STRING)
_OPTIONAL_TEXT: Final = Schema(Type.STRING, optional=True)
_TYPES: Final = {
    "boolean": Type.BOOLEAN,
    "byte": Type.INT8,
    "short": Type.INT16,
    "integer": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "string": Type.STRING,
    "bytes": Type.BYTES,
}
_PROPERTY: Final = Schema(
    Type.STRUCT,
    name=f"{_NAME}PropertyValue",
    fields=(
        Field("propertyType", _TEXT),
        *(Field(name, Schema(kind, optional=True)) for name, kind in _TYPES.items()),
    ),
)
_DESTINATION: Final = Schema(
    Type.STRUCT,
    optional=True,
    name=f"{_NAME}Destination",
    fields=(Field("destinationType", _TEXT), Field("name", _TEXT)),
)
_PROPERTIES: Final = Schema(Type.MAP, key_schema=_TEXT, value_schema=_PROPERTY)
KEY: Final = Schema(Type.STRUCT, name=f"{_NAME}Key", fields=(Field("messageID", _TEXT),))
VALUE: Final = Schema(
    Type.STRUCT,
    name=f"{_NAME}Value",
    fields=(
        Field("messageID", _TEXT),
        Field("messageType", _TEXT),
        Field("timestamp", Schema(Type.INT64)),
        Field("deliveryMode", Schema(Type.INT32)),
        Field("correlationID", _OPTIONAL_TEXT),
        Field("replyTo", _DESTINATION),
        Field("destination", _DESTINATION),
        Field("redelivered", Schema(Type.BOOLEAN)),
        Field("type", _OPTIONAL_TEXT),
        Field("expiration", Schema(Type.INT64)),
        Field("priority", Schema(Type.INT32)),
        Field("properties", _PROPERTIES),
        Field("bytes", Schema(Type.BYTES, optional=True)),
        Field("map", Schema(Type.MAP, True, key_schema=_TEXT, value_schema=_PROPERTY)),
        Field("text", _OPTIONAL_TEXT),
    ),
)

_OWN_HEADERS: Final = frozenset(
    (
        *("message-id", "destination", "timestamp", "expires", "priority", "persistent", "redelivered", "type"),
        *("correlation-id", "reply-to", "ack", "subscription", "content-length", "content-type", "amq-msg-type"),
        *("transformation", "transformation-error", "receipt", "transaction"),
    )
)
"""Headers of a frame that are no properties of the message."""
_PREFIXES: Final = (
    *("/queue/", "/topic/", "/temp-queue/", "/temp-topic/", "/remote-temp-queue/", "/remote-temp-topic/"),
    *("queue://", "topic://", "temp-queue://", "temp-topic://"),  # of Artemis
)
_MAP: Final = "jms-map-json"
_JSON_TYPES: Final = {"int": "integer", "byte-array": "bytes", "char": "string"}
"""What XStream, with which ActiveMQ writes maps, calls otherwise."""


def to_record(topic: str, headers: Mapping[str, str], body: bytes, encoding: str) -> Record:
    """RecordError if the body is not what the headers say."""
    value: dict[str, Any] = {
        "messageID": headers["message-id"],
        "timestamp": _to_int(headers, "timestamp"),
        "deliveryMode": 2 if headers.get("persistent") == "true" else 1,
        "correlationID": headers.get("correlation-id"),
        "replyTo": _to_destination(headers.get("reply-to")),
        "destination": _to_destination(headers.get("destination")),
        "redelivered": headers.get("redelivered") == "true",
        "type": headers.get("type"),
        "expiration": _to_int(headers, "expires"),
        "priority": _to_int(headers, "priority", 4),
        "properties": {
            name: {"propertyType": "string", "string": text}
            for name, text in headers.items()
            if name not in _OWN_HEADERS
        },
        "bytes": None,
        "map": None,
        "text": None,
    }
    if headers.get("transformation") == _MAP:
        value |= {"messageType": "map", "map": _parse_map(body)}
    elif "content-length" in headers and headers.get("amq-msg-type") != "text":
        value |= {"messageType": "bytes", "bytes": body}
    else:
        value |= {"messageType": "text", "text": _decode(body, encoding)}
    timestamp = value["timestamp"] or None
    return Record(topic, value, VALUE, {"messageID": value["messageID"]}, KEY, timestamp=timestamp)


def _to_int(headers: Mapping[str, str], name: str, default: int = 0) -> int:
    text = headers.get(name, "")
    return int(text) if text.lstrip("-").isdecimal() else default


def _to_destination(text: str | None) -> dict[str, str] | None:
    if not text:
        return None
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            kind = "topic" if "topic" in prefix else "queue"
            return {"destinationType": kind, "name": text.removeprefix(prefix)}
    return {"destinationType": "queue", "name": text}


def _decode(body: bytes, encoding: str) -> str:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError as error:
        try:
            halves = body.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeError:
            raise RecordError(f"the text of the message is not in {encoding}: {error}") from None


def _encode_for_java(text: str) -> bytes:
    """The UTF-8 that Java's clients of ActiveMQ Classic can read."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = text.encode("utf-16-be", "surrogatepass")
    halves = "".join(chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
    return halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def _parse_map(body: bytes) -> dict[str, Any]:
    """The JSON of XStream: an entry is an object of a key and a value, each named by its type."""
    try:
        found = json.loads(body)["map"]
        entries = found["entry"] if isinstance(found, dict) else []
        return dict(map(_parse_entry, entries if isinstance(entries, list) else [entries]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"the map of the message cannot be read: {type(error).__name__}: {error}") from None


def _parse_entry(entry: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    both = entry.get("string")
    if isinstance(both, list):
        return str(both[0]), {"propertyType": "string", "string": str(both[1])}
    [(given, value)] = [(kind, value) for kind, value in entry.items() if kind != "string"]
    kind = _JSON_TYPES.get(given, given)
    if kind == "null":
        return str(both), {"propertyType": "string"}
    if kind not in _TYPES:
        raise ValueError(f"a value of the type {given}")
    return str(both), {"propertyType": kind, kind: base64.b64decode(value) if kind == "bytes" else value}


class FrameMaker:
    """Makes frames of records, by the settings of a sink."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._format = config["jms.message.format"]
        self._json = make_converter("json", {"schemas.enable": "false", "decimal.format": "NUMERIC"}, False)

    def make(self, record: Record, is_classic: bool, now_ms: int) -> Frame:
        """RecordError if the value cannot be a message of the format."""
        config = self._config
        headers = {
            "persistent": "true" if config["jms.producer.delivery.mode"] == "persistent" else "false",
            "priority": str(config["jms.producer.priority"]),
            "_AMQ_DUPL_ID": f"{record.topic}-{record.partition}-{record.offset}",
        }
        if is_classic:
            del headers["_AMQ_DUPL_ID"]
        if config["jms.producer.time.to.live.ms"]:
            headers["expires"] = str(now_ms + config["jms.producer.time.to.live.ms"])
        if config["jms.forward.kafka.key"] and record.key is not None:
            headers["correlation-id"] = _to_text(record.key_schema, record.key)
        if config["jms.forward.kafka.metadata"]:
            headers |= {
                "KAFKA_TOPIC": record.topic,
                "KAFKA_PARTITION": str(record.partition),
                "KAFKA_OFFSET": str(record.offset),
            }
        if config["jms.forward.kafka.headers"]:
            for each in record.headers:
                if each.key not in headers and each.key not in _OWN_HEADERS and each.value is not None:
                    headers[each.key] = _to_text(each.schema, each.value)
        return self._add_body(headers, record, is_classic)

    def _add_body(self, headers: dict[str, str], record: Record, is_classic: bool) -> Frame:
        value = record.value
        if self._format == "bytes":
            body = _to_bytes(value, self._config["character.encoding"])
            return Frame({**headers, "content-length": str(len(body))}, body)
        if self._format == "map":
            if not is_classic:
                raise RecordError("this broker takes no map messages over STOMP; ActiveMQ Classic does")
            return Frame({**headers, "transformation": _MAP}, _write_map(value))
        if self._format == "json":
            text = (self._json.to_bytes(record.topic, (), record.value_schema, value) or b"null").decode()
        else:
            text = "" if value is None else _to_text(record.value_schema, value)
        if is_classic:
            return Frame(headers, _encode_for_java(text))
        return Frame(headers, text.encode(self._config["character.encoding"], "replace").replace(b"\0", b""))


def _to_text(schema: Schema | None, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return to_connect_text(schema, value)


def _to_bytes(value: Any, encoding: str) -> bytes:
    match value:
        case None:
            return b""
        case bytes():
            return value
        case str():
            return value.encode(encoding)
    raise RecordError(f"a value of type {type(value).__name__} is no bytes; use jms.message.format=json")


def _write_map(value: Any) -> bytes:
    """A struct or a map, whose values JMS has types for."""
    if not isinstance(value, Mapping):
        raise RecordError(f"a value of type {type(value).__name__} is no map message")
    entries: list[dict[str, Any]] = []
    for name, each in value.items():
        match each:
            case None:
                continue
            case bool():
                entries.append({"string": name, "boolean": each})
            case int() if -(1 << 31) <= each < 1 << 31:
                entries.append({"string": name, "int": each})
            case int() if -(1 << 63) <= each < 1 << 63:
                entries.append({"string": name, "long": each})
            case float() if math.isfinite(each):
                entries.append({"string": name, "double": each})
            case str():
                entries.append({"string": [name, each]})
            case bytes():
                entries.append({"string": name, "byte-array": base64.b64encode(each).decode()})
            case _:
                raise RecordError(f"the field {name} has a value that a map message cannot hold: {each!r:.80}")
    return json.dumps({"map": {"entry": entries}} if entries else {"map": ""}).encode()
