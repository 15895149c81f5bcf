"""Converters whose schemas are in a schema registry, with the bytes of Confluent's: zero, the schema's id, the value.

A subject is the topic's name and `-key` or `-value`, or what the subject name strategy says.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from ottla.connect.converters.converter import Converter, Headers
from ottla.connect.data.schema import Schema
from ottla.connect.data.schema_cache import SchemaCache
from ottla.connect.errors import BadConfig, RecordError, RetriableError
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.pipeline.registry import MAGIC, PREFIX_SIZE, RegisteredSchema, Registry, RegistryError, UnknownSchema

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]

URL: Final = "schema.registry.url"
AUTO_REGISTER: Final = "auto.register.schemas"
USE_LATEST: Final = "use.latest.version"
_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


def _check_strategy(name: str, value: str) -> None:
    if value.rpartition(".")[2] not in _STRATEGIES:
        raise ValueError(f"there are {', '.join(_STRATEGIES)}")


def _make_strategy_setting(part: str) -> Setting:
    return Setting(
        f"{part}.subject.name.strategy",
        Kind.CLASS,
        "io.confluent.kafka.serializers.subject.TopicNameStrategy",
        f"Determines the subject under which the schema of a {part} is registered.",
        check=_check_strategy,
    )


REGISTRY_SETTINGS: Final = (
    Setting(URL, Kind.STRING, REQUIRED, "The addresses of the schema registry, separated by commas.", Importance.HIGH),
    Setting(AUTO_REGISTER, Kind.BOOLEAN, True, "Whether schemas that the registry does not have are registered."),
    Setting(
        USE_LATEST,
        Kind.BOOLEAN,
        False,
        "With auto.register.schemas=false: write with the newest schema of the subject, whatever a record's schema is.",
        Importance.LOW,
    ),
    Setting("basic.auth.user.info", Kind.PASSWORD, None, "User and password for the registry, as user:password."),
    Setting("bearer.auth.token", Kind.PASSWORD, None, "A token for the registry."),
    _make_strategy_setting("key"),
    _make_strategy_setting("value"),
)


class RegistryConverter(Converter):
    settings: ClassVar[Settings] = Settings(REGISTRY_SETTINGS)
    kind: ClassVar[str]
    """AVRO, JSON or PROTOBUF, as the registry calls it."""

    def __init__(self, config: Mapping[str, Any], is_key: bool) -> None:
        given = {name: str(value) for name, value in config.items() if value is not None}
        try:
            self._registry = Registry(given)
        except ValueError as error:
            raise BadConfig(str(error)) from None
        self._suffix = "-key" if is_key else "-value"
        self._strategy: str = config[f"{self._suffix[1:]}.subject.name.strategy"].rpartition(".")[2]
        self._registers: bool = config[AUTO_REGISTER]
        self._uses_latest: bool = config[USE_LATEST] and not self._registers
        self._readers: dict[tuple[int, tuple[int, ...]], tuple[Schema, Decode]] = {}
        self._writers: dict[str, SchemaCache[tuple[bytes, Encode]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": {}, "_writers": {}}

    @abstractmethod
    def make_reader(self, registered: RegisteredSchema, indexes: tuple[int, ...]) -> tuple[Schema, Decode]:
        """The schema of values that are written with a registered schema, and the function that reads them."""

    @abstractmethod
    def make_schema(self, schema: Schema) -> str:
        """The text to register for a schema. RecordError if it cannot be said."""

    @abstractmethod
    def make_writer(self, schema: Schema, registered: RegisteredSchema) -> Encode:
        """The function that writes values of `schema` with a registered schema."""

    def read_indexes(self, data: bytes, start: int) -> tuple[tuple[int, ...], int]:
        """Which message of its schema a value is, and where the value begins. Only Protobuf's schemas have several."""
        return (), start

    def from_bytes(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return None, None
        if len(data) < PREFIX_SIZE or data[0] != MAGIC:
            raise RecordError("it does not begin with the id of a schema, as values written with a schema registry do")
        number = int.from_bytes(data[1:PREFIX_SIZE], "big")
        indexes, start = self.read_indexes(data, PREFIX_SIZE)
        reader = self._readers.get((number, indexes))
        if reader is None:
            reader = self._readers[number, indexes] = self._find_reader(number, indexes)
        schema, decode = reader
        return schema, decode(data[start:])

    def _find_reader(self, number: int, indexes: tuple[int, ...]) -> tuple[Schema, Decode]:
        registered = ask(lambda: self._registry.by_number(number))
        if registered.kind != self.kind:
            raise RecordError(f"schema {number} is {registered.kind}, not {self.kind}")
        try:
            return self.make_reader(registered, indexes)
        except ValueError as error:
            raise RecordError(f"schema {number}: {error}") from None

    def to_bytes(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        if value is None and (schema is None or schema.optional):
            return None
        if schema is None:
            raise RecordError(f"{type(self).__name__} writes only values that have a schema")
        subject = self._find_subject(topic, schema)
        writers = self._writers.get(subject)
        if writers is None:
            writers = self._writers[subject] = SchemaCache(partial(self._find_writer, subject))
        prefix, encode = writers.find(schema)
        return prefix + encode(value)

    def _find_subject(self, topic: str, schema: Schema) -> str:
        if self._strategy == "TopicNameStrategy":
            return topic + self._suffix
        if schema.name is None:
            raise RecordError(f"{self._strategy}: the schema of a record has no name")
        return schema.name if self._strategy == "RecordNameStrategy" else f"{topic}-{schema.name}"

    def _find_writer(self, subject: str, schema: Schema) -> tuple[bytes, Encode]:
        text = None if self._uses_latest else self.make_schema(schema)
        if text is None:
            registered = ask(lambda: self._registry.latest(subject))
            if registered.kind != self.kind or registered.number is None:
                raise RecordError(f"the newest schema of {subject} is {registered.kind}, not {self.kind}")
        else:
            give = self._registry.register if self._registers else self._registry.find_number
            registered = RegisteredSchema(self.kind, text, (), ask(lambda: give(subject, self.kind, text)))
        assert registered.number is not None
        return bytes([MAGIC]) + registered.number.to_bytes(4, "big"), self.make_writer(schema, registered)


def ask(request: Callable[[], Any]) -> Any:
    try:
        return request()
    except UnknownSchema as error:
        raise RecordError(str(error)) from None
    except RegistryError as error:
        raise RetriableError(str(error)) from None
