"""An HTTP client for a schema registry: it gets schemas by id and the versions of a subject, and registers schemas.

The API is that of Confluent's Schema Registry, which other registries implement too. Schemas are cached by id, because
the schema of an id never changes.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

MAGIC = 0
PREFIX_SIZE = 5
"""A value that is written with a registered schema begins with the byte MAGIC and the schema's id in four bytes."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024
REFERENCES_MAX = 100

_NOT_FOUND = 404
_ROOT = "schema.proto"
_CONTENT = "application/vnd.schemaregistry.v1+json"
_NO_REGISTRY = "the answer is not a schema; is this the address of a schema registry?"
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryError(Exception):
    """The registry cannot be reached, or its answer is not that of a schema registry. The message has one line."""


class UnknownSchema(RegistryError):
    """The registry has answered that it does not have the schema."""


class RegisteredSchema(NamedTuple):
    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    """The schema as JSON; for PROTOBUF a FileDescriptorProto in base64, or the source of a .proto file from a registry
    that has nothing else."""
    references: tuple[tuple[str, str, int], ...] = ()
    """Schemas that this one imports: name, subject, version."""
    number: int | None = None
    """The id of the schema, if it was found as a version of a subject."""


class Registry:
    """A client with a cache. A pickled copy has the same settings and an empty cache."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """The settings have the names of Confluent's clients: schema.registry.url (one or several, separated by
        commas), schema.registry.request.timeout.ms, basic.auth.user.info, bearer.auth.token."""
        self.settings = dict(settings)
        self._urls = [each.strip().rstrip("/") for each in settings.get("schema.registry.url", "").split(",")]
        for url in self._urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
                raise ValueError(f"schema.registry.url: {url!r} is no http or https address")
        milliseconds = settings.get("schema.registry.request.timeout.ms", "10000")
        if not milliseconds.isdecimal():
            raise ValueError(f"schema.registry.request.timeout.ms: {milliseconds!r} is not a number of milliseconds")
        self._timeout_s = int(milliseconds) / 1000
        self._headers = {"Accept": _ACCEPT, **_make_authorization(settings)}
        self._by_number: dict[int, RegisteredSchema] = {}

    def __reduce__(self) -> tuple[type["Registry"], tuple[dict[str, str]]]:
        return Registry, (self.settings,)

    def by_number(self, number: int) -> RegisteredSchema:
        """The schema with the id that values carry. UnknownSchema if the registry has none."""
        found = self._by_number.get(number)
        if found is None:
            found = _parse_schema(self._get(f"/schemas/ids/{number}"))
            if found.kind == "PROTOBUF":
                found = _parse_schema(self._get(f"/schemas/ids/{number}?format=serialized"))
            self._by_number[number] = found
        return found

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject; not cached."""
        return self.version(subject, "latest")

    def version(self, subject: str, version: int | str) -> RegisteredSchema:
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
        found = _parse_schema(self._get(path))
        return _parse_schema(self._get(f"{path}?format=serialized")) if found.kind == "PROTOBUF" else found

    def register(self, subject: str, kind: str, text: str) -> int:
        """Adds a schema to a subject, unless it is there already. Returns its id."""
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        return self._ask_for_number(f"/subjects/{quote(subject, safe='')}/versions", body)

    def find_number(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema that the subject has. UnknownSchema if it does not have it."""
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        return self._ask_for_number(f"/subjects/{quote(subject, safe='')}", body)

    def _ask_for_number(self, path: str, body: dict[str, str]) -> int:
        answer = self._ask(path, json.dumps(body).encode())
        if not isinstance(answer.get("id"), int):
            raise RegistryError(f"{self._urls[0]}: the answer has no id; is this the address of a schema registry?")
        return int(answer["id"])

    def files(self, schema: RegisteredSchema) -> list[bytes]:
        """The serialized FileDescriptorProtos of a PROTOBUF schema and its imports, each after those it imports. Each
        file has the name under which others import it."""
        found: dict[str, bytes] = {}
        begun: set[str] = set()

        def add(name: str, each: RegisteredSchema) -> None:
            if name in begun or len(begun) > REFERENCES_MAX:
                return
            begun.add(name)
            for reference, subject, version in each.references:
                add(reference, self.version(subject, version))
            found[name] = _parse_file(name, each.text)

        add(_ROOT, schema)
        return list(found.values())

    def _get(self, path: str) -> dict[str, Any]:
        found = self._ask(path)
        if not isinstance(found.get("schema"), str):
            raise RegistryError(f"{self._urls[0]}: {_NO_REGISTRY}")
        return found

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        """The answer of the first registry address that works. A request with a body is a POST."""
        trouble = RegistryError("no registry")
        headers = self._headers if body is None else {**self._headers, "Content-Type": _CONTENT}
        for url in self._urls:
            try:
                with urlopen(Request(url + path, body, headers), timeout=self._timeout_s) as answer:
                    return _parse_answer(answer.read(ANSWER_BYTES_MAX), url)
            except HTTPError as error:
                with error:
                    reason = _read_error_message(error.read(1000)) or error.reason
                if error.code == _NOT_FOUND:
                    raise UnknownSchema(f"{url}{path}: {reason}") from None
                trouble = RegistryError(f"{url}{path}: {error.code} {reason}")
            except (URLError, OSError) as error:
                trouble = RegistryError(f"{url}: {getattr(error, 'reason', error)}")
        raise trouble


def _make_authorization(settings: Mapping[str, str]) -> dict[str, str]:
    user = settings.get("basic.auth.user.info") or settings.get("schema.registry.basic.auth.user.info")
    if user:
        return {"Authorization": "Basic " + b64encode(user.encode()).decode()}
    token = settings.get("bearer.auth.token")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _parse_answer(body: bytes, url: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RegistryError(f"{url}: {_NO_REGISTRY}")
    return found


def _read_error_message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _parse_file(name: str, text: str) -> bytes:
    """The serialized FileDescriptorProto of a schema, which is one in base64 or the source of a .proto file."""
    from google.protobuf import descriptor_pb2

    from ottla.pipeline.formats.proto_source import parse_source

    try:
        parsed = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    except Exception:  # of base64 or of Protobuf: then it is source, which has characters that base64 does not have
        try:
            parsed = parse_source(text)
        except ValueError as error:
            raise RegistryError(f"the registry's Protobuf schema {name!r}: {error}") from None
    parsed.name = name
    serialized: bytes = parsed.SerializeToString()
    return serialized


def _parse_schema(answer: dict[str, Any]) -> RegisteredSchema:
    references = tuple(
        (str(each["name"]), str(each["subject"]), int(each["version"])) for each in answer.get("references") or ()
    )
    number = answer.get("id")
    return RegisteredSchema(
        answer.get("schemaType", "AVRO"), answer["schema"], references, number if isinstance(number, int) else None
    )
