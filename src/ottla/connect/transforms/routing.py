"""Transformations of the topic: RegexRouter, TimestampRouter."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ottla.connect.data.logical import millis_to_datetime
from ottla.connect.data.record import Record
from ottla.connect.errors import RecordError
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.date_patterns import DatePattern
from ottla.connect.transforms.java_regex import check_java_regex, compile_java, compile_replacement
from ottla.connect.transforms.transformation import Transformation, with_topic

_TOPICS_MAX: Final = 10_000
"""Topics whose new names are remembered."""


class RegexRouter(Transformation):
    doc: ClassVar[str] = (
        "Update the record topic using the configured regular expression and replacement string.<p/>If the pattern "
        "matches the input topic, its first match is replaced with the replacement string to obtain the new topic."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "regex",
                Kind.STRING,
                REQUIRED,
                "Regular expression to use for matching.",
                Importance.HIGH,
                check=check_java_regex,
            ),
            Setting("replacement", Kind.STRING, REQUIRED, "Replacement string.", Importance.HIGH),
        )
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._pattern = compile_java(config["regex"])
        self._replacement = compile_replacement(self._pattern, config["replacement"])
        self._topics: dict[str, str] = {}

    def apply(self, record: Record) -> Record | None:
        topic = self._topics.get(record.topic)
        if topic is None:
            topic = self._find_topic(record.topic)
        return record if topic == record.topic else with_topic(record, topic)

    def _find_topic(self, topic: str) -> str:
        found = self._pattern.sub(self._replacement, topic, count=1) if self._pattern.fullmatch(topic) else topic
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics[topic] = found
        return found


class TimestampRouter(Transformation):
    doc: ClassVar[str] = (
        "Update the record's topic field as a function of the original topic value and the record timestamp.<p/>This "
        "is mainly useful for sink connectors, since the topic field is often used to determine the equivalent entity "
        "name in the destination system(e.g. database table or search index name)."
    )
    settings: ClassVar[Settings] = Settings(
        (
            Setting(
                "topic.format",
                Kind.STRING,
                "${topic}-${timestamp}",
                "Format string which can contain <code>${topic}</code> and <code>${timestamp}</code> as placeholders "
                "for the topic and timestamp, respectively.",
                Importance.HIGH,
            ),
            Setting(
                "timestamp.format",
                Kind.STRING,
                "yyyyMMdd",
                "Format string for the timestamp that is compatible with <code>java.text.SimpleDateFormat</code>.",
                Importance.HIGH,
            ),
        )
    )

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._topic_format: str = config["topic.format"]
        self._pattern = DatePattern(config["timestamp.format"])

    def apply(self, record: Record) -> Record | None:
        if record.timestamp is None:
            raise RecordError("Timestamp missing on record")
        moment = self._pattern.format(millis_to_datetime(record.timestamp))
        topic = self._topic_format.replace("${topic}", record.topic).replace("${timestamp}", moment)
        return with_topic(record, topic)
