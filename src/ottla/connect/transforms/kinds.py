"""All transformations and predicates by name: by Kafka's class names, or by the last part of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from ottla.connect.errors import BadConfig
from ottla.connect.settings.definition import Settings
from ottla.connect.transforms.casting import Cast
from ottla.connect.transforms.debezium import ExtractNewRecordState
from ottla.connect.transforms.fields import ExtractField, HoistField, ReplaceField, ValueToKey
from ottla.connect.transforms.filtering import Filter
from ottla.connect.transforms.flattening import Flatten
from ottla.connect.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from ottla.connect.transforms.inserting import InsertField
from ottla.connect.transforms.masking import MaskField
from ottla.connect.transforms.metadata import SetSchemaMetadata
from ottla.connect.transforms.predicates import HasHeaderKey, Predicate, RecordIsTombstone, TopicNameMatches
from ottla.connect.transforms.routing import RegexRouter, TimestampRouter
from ottla.connect.transforms.timestamps import TimestampConverter
from ottla.connect.transforms.transformation import KeyOrValueTransformation, Transformation

Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True)
class Plugin(Generic[Made]):
    """Something that can be named in a setting, with its settings."""

    class_name: str
    """Kafka's."""
    settings: Settings
    doc: str
    make: Callable[[Mapping[str, Any]], Made]
    """With the parsed settings."""

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


_PACKAGE: Final = "org.apache.kafka.connect.transforms"
_OF_KEY_OR_VALUE: Final[tuple[type[KeyOrValueTransformation], ...]] = (
    Cast,
    ExtractField,
    Flatten,
    HeaderFrom,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
_OF_RECORDS: Final[tuple[type[Transformation], ...]] = (
    DropHeaders,
    Filter,
    InsertHeader,
    RegexRouter,
    TimestampRouter,
    ValueToKey,
)
_PREDICATES: Final[tuple[type[Predicate], ...]] = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)

TRANSFORMATIONS: Final[tuple[Plugin[Transformation], ...]] = (
    *(
        Plugin(f"{_PACKAGE}.{kind.__name__}${part}", kind.settings, kind.doc, partial(kind, is_key=part == "Key"))
        for kind in _OF_KEY_OR_VALUE
        for part in ("Key", "Value")
    ),
    *(Plugin(f"{_PACKAGE}.{kind.__name__}", kind.settings, kind.doc, kind) for kind in _OF_RECORDS),
    Plugin(
        "io.debezium.transforms.ExtractNewRecordState",
        ExtractNewRecordState.settings,
        ExtractNewRecordState.doc,
        ExtractNewRecordState,
    ),
)
PREDICATES: Final[tuple[Plugin[Predicate], ...]] = tuple(
    Plugin(f"{_PACKAGE}.predicates.{kind.__name__}", kind.settings, kind.doc, kind) for kind in _PREDICATES
)


def find_plugin(name: str, plugins: Sequence[Plugin[Made]]) -> Plugin[Made]:
    """The plugin with a class name or a short name. BadConfig if there is none."""
    for each in plugins:
        if name in (each.class_name, each.short_name):
            return each
    known = ", ".join(each.short_name for each in plugins)
    raise BadConfig(f"there is no class {name!r}; there are {known}")
