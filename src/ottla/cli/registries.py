"""Schema registries on the command line: `ottla consume` decodes with their schemas, `ottla produce` encodes."""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.client_settings import is_registry_setting
from ottla.cli.command_error import USAGE_ERROR, CommandError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.pipeline.documents.registered import Write
    from ottla.pipeline.registry import RegisteredSchema, Registry

URL = "schema.registry.url"
LATEST = "latest"
KINDS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def add_registry_argument(parser: argparse.ArgumentParser, purpose: str) -> None:
    parser.add_argument(
        "--registry",
        "--schema-registry",
        metavar="URL",
        help=f"a schema registry, {purpose} (default: schema.registry.url of the profile)",
    )


def open_registry(options: argparse.Namespace, settings: Mapping[str, str]) -> "Registry | None":
    """The registry that --registry or the client's settings name."""
    found = {name: value for name, value in settings.items() if is_registry_setting(name)}
    if options.registry is not None:
        found[URL] = options.registry
    if not found.get(URL):
        return None
    from ottla.pipeline.registry import Registry

    try:
        return Registry(found)
    except ValueError as error:
        raise CommandError(f"--registry: {error}", USAGE_ERROR) from None


class JsonText(bytes):
    """A key or value that was decoded: the text of a JSON document, and the document."""

    document: Any


class DecodedMessage:
    """A record whose key and value are decoded. It has the methods of confluent-kafka's Message that are used here."""

    def __init__(self, message: "Message", key: Any, value: Any) -> None:
        self._key, self._value = key, value
        self.topic, self.partition, self.offset = message.topic, message.partition, message.offset
        self.timestamp, self.headers = message.timestamp, message.headers

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value


class Decoder:
    """Decodes keys and values that begin with the id of a schema; all others stay as they are."""

    def __init__(self, registry: "Registry") -> None:
        from ottla.pipeline.documents.registered import DocumentReader

        self._reader = DocumentReader(registry)
        self._undecodable: set[int] = set()
        """The ids of schemas about which a warning was printed."""

    def decode(self, message: "Message") -> Any:
        return DecodedMessage(
            message, self._decode(message, "key", message.key()), self._decode(message, "value", message.value())
        )

    def _decode(self, message: "Message", part: str, data: Any) -> Any:
        from ottla.pipeline import json_text
        from ottla.pipeline.documents.registered import find_number, is_framed
        from ottla.pipeline.registry import RegistryError, UnknownSchema

        if not isinstance(data, bytes) or not is_framed(data):
            return data
        try:
            document = self._reader.read(data).content
        except (ValueError, UnknownSchema) as error:
            number = find_number(data)
            if number not in self._undecodable:
                self._undecodable.add(number)
                where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
                print(f"ottla: {where}: the {part} is shown as it is: {error}", file=sys.stderr)
            return data
        except RegistryError as error:
            raise CommandError(f"schema registry: {error}") from None
        text = JsonText(json_text.write(document, indented=False).encode())
        text.document = document
        return text


class Encoder:
    """Encodes keys or values, given as JSON, with one schema."""

    def __init__(self, part: str, write: "Write") -> None:
        self._part = part
        self._write = write

    def encode(self, data: bytes | None) -> bytes | None:
        """CommandError if the data does not fit the schema. A null stays a null."""
        if data is None:
            return None
        try:
            return self._write(data)
        except ValueError as error:
            raise CommandError(f"the {self._part} does not fit its schema: {' '.join(str(error).split())}") from None


def make_encoder(registry: "Registry", part: str, wanted: str, options: argparse.Namespace) -> Encoder:
    """`wanted` is what --key-schema or --value-schema says: a file, `latest`, or the id of a schema."""
    from ottla.pipeline.documents.registered import make_document_writer
    from ottla.pipeline.registry import RegistryError, UnknownSchema

    subject = f"{options.topic}-{part}"
    try:
        schema = _find_schema(registry, subject, wanted, register=not options.no_register)
        message = options.message if part == "value" else ""
        return Encoder(part, make_document_writer(registry, schema, message))
    except UnknownSchema as error:
        hint = "; without --no-register it is added" if options.no_register else ""
        raise CommandError(f"schema registry: subject {subject!r}: {error}{hint}") from None
    except RegistryError as error:
        raise CommandError(f"schema registry: {error}") from None
    except ValueError as error:
        raise CommandError(f"--{part}-schema {wanted}: {error}", USAGE_ERROR) from None


def _find_schema(registry: "Registry", subject: str, wanted: str, *, register: bool) -> "RegisteredSchema":
    if wanted == LATEST:
        found = registry.latest(subject)
        if found.number is None:
            raise ValueError(f"the registry does not say which id the newest schema of {subject!r} has")
        return found
    if wanted.isdecimal():
        return registry.by_number(int(wanted))._replace(number=int(wanted))
    kind = next((kind for suffix, kind in KINDS.items() if wanted.endswith(suffix)), None)
    if kind is None:
        raise ValueError(f"neither {LATEST!r}, an id, nor a file whose name ends with {', '.join(KINDS)}")
    try:
        with open(wanted, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise ValueError(str(error.strerror or error)) from None
    number = (registry.register if register else registry.find_number)(subject, kind, text)
    return registry.by_number(number)._replace(number=number)
