"""Predicates: which records a transformation applies to."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from ottla.connect.data.record import Record
from ottla.connect.settings.checks import non_empty
from ottla.connect.settings.definition import REQUIRED, Kind, Setting, Settings
from ottla.connect.transforms.java_regex import check_java_regex, compile_java


class Predicate(ABC):
    settings: ClassVar[Settings] = Settings()
    doc: ClassVar[str]

    def __init__(self, config: Mapping[str, Any]) -> None:  # noqa: B027 - some have no settings
        """`config` has the parsed value of each declared setting."""

    @abstractmethod
    def test(self, record: Record) -> bool: ...


def _check_pattern(name: str, value: str) -> None:
    non_empty(name, value)
    check_java_regex(name, value)


class TopicNameMatches(Predicate):
    doc: ClassVar[str] = (
        "A predicate which is true for records with a topic name that matches the configured regular expression."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "pattern",
                Kind.STRING,
                REQUIRED,
                "A Java regular expression for matching against the name of a record's topic.",
                check=_check_pattern,
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._pattern = compile_java(config["pattern"])

    def test(self, record: Record) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey(Predicate):
    doc: ClassVar[str] = "A predicate which is true for records with at least one header with the configured name."
    settings: ClassVar[Settings] = Settings(
        (Setting("name", Kind.STRING, REQUIRED, "The header name.", check=non_empty),)
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._name: str = config["name"]

    def test(self, record: Record) -> bool:
        return any(each.key == self._name for each in record.headers)


class RecordIsTombstone(Predicate):
    doc: ClassVar[str] = "A predicate which is true for records which are tombstones (i.e. have null value)."

    def test(self, record: Record) -> bool:
        return record.value is None
