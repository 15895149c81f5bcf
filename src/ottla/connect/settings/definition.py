"""Declares the settings of a connector, a transformation, a converter or a worker, as Kafka's ConfigDef does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final


class Kind(Enum):
    """Types of settings by Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"


class Importance(Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


REQUIRED: Final = object()
"""The default of a setting that has none."""


class Password(str):
    """A secret: its repr shows nothing, so that no log line or message shows it by accident."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


@dataclass(frozen=True)
class Setting:
    name: str
    kind: Kind
    default: Any
    """`REQUIRED`, or a value of the kind; None where Kafka has null."""
    doc: str
    importance: Importance = Importance.MEDIUM
    check: Callable[[str, Any], None] | None = None
    """Called with the name and the parsed value; raises ValueError with what is wrong."""
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str | None = None
    dependents: Sequence[str] = ()
    recommend: Callable[[str, Mapping[str, Any]], Sequence[Any]] | None = None
    is_visible: Callable[[str, Mapping[str, Any]], bool] | None = None


@dataclass(frozen=True)
class Settings:
    """The declared settings of one thing, in order."""

    settings: tuple[Setting, ...] = ()
    refuse: Callable[[Mapping[str, Any]], Mapping[str, Sequence[str]]] | None = field(default=None, compare=False)
    """A check over several settings: the errors of each setting's name."""
    harmless: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    """Settings that others have for a connector of this name, with the values of each that change nothing here, in any
    case. Other values are refused."""
    refused_prefixes: tuple[str, ...] = ()
    """How the names of further settings begin that are refused, whatever their values are."""
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Why a setting is refused, or what to do instead."""
    accepted: frozenset[str] = frozenset()
    """Names of settings that are not declared and have no effect, of which the log says nothing."""
