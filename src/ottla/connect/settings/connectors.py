"""The settings that every connector has, sources and sinks: Kafka Connect's names, types, defaults and groups.

`source_settings` and `sink_settings` are the base. Transformations, predicates and groups of topics to create add
settings of their own, whose names a connector's configuration chooses: `plugins/checking.py` does that.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.connect.settings.checks import (
    OptionalAtLeast,
    UniqueAliases,
    are_regexes,
    at_least,
    is_regex,
    non_empty,
    non_empty_without_control_characters,
    one_of,
    one_of_ignoring_case,
    positive_or_default,
    unique_and_not_empty,
)
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings, Width

COMMON: Final = "Common"
TRANSFORMS: Final = "Transforms"
PREDICATES: Final = "Predicates"
ERRORS: Final = "Error Handling"
TOPIC_CREATION: Final = "Topic Creation"
EXACTLY_ONCE: Final = "Exactly Once Support"
OFFSETS_TOPIC: Final = "offsets.topic"

NAME: Final = "name"
CONNECTOR_CLASS: Final = "connector.class"
CONNECTOR_VERSION: Final = "connector.plugin.version"
CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
TOPIC_CREATION_PREFIX: Final = "topic.creation."

_LOW, _MEDIUM, _HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH
_BOOLEAN, _STRING, _INT, _LONG, _LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST


def _define(
    group: str,
    order: int,
    name: str,
    kind: Kind,
    default: Any,
    width: Width,
    title: str,
    doc: str,
    *,
    importance: Importance = _MEDIUM,
    check: Callable[[str, Any], None] | None = None,
) -> Setting:
    return Setting(name, kind, default, doc, importance, check, group, order, width, title)


def _converter(order: int, name: str, title: str, doc: str) -> tuple[Setting, Setting]:
    words = title.removesuffix(" class")
    version = f"The version of the {words.lower()}; only the installed one can be asked for."
    return (
        _define(COMMON, order, name, Kind.CLASS, None, Width.SHORT, title, doc, importance=_LOW),
        _define(
            COMMON,
            order + 1,
            f"{name}.plugin.version",
            _STRING,
            None,
            Width.SHORT,
            f"{words} version",
            version,
            importance=_LOW,
        ),
    )


_CONNECTOR: Final = (
    _define(
        COMMON,
        1,
        NAME,
        _STRING,
        REQUIRED,
        Width.MEDIUM,
        "Connector name",
        "The name of the connector, unique among those of the workers' group.",
        importance=_HIGH,
        check=non_empty_without_control_characters,
    ),
    _define(
        COMMON,
        2,
        CONNECTOR_CLASS,
        _STRING,
        REQUIRED,
        Width.LONG,
        "Connector class",
        "The connector: the full name of its class as in Kafka Connect, the last part of that name, with or without"
        " `Connector` at the end, or `module:Class` for a class of one's own.",
        importance=_HIGH,
    ),
    _define(
        COMMON,
        3,
        CONNECTOR_VERSION,
        _STRING,
        None,
        Width.MEDIUM,
        "Connector version",
        "The version of the connector; only the installed one can be asked for.",
    ),
    _define(
        COMMON,
        4,
        "tasks.max",
        _INT,
        1,
        Width.SHORT,
        "Tasks max",
        "How many tasks of the connector may run at once.",
        importance=_HIGH,
        check=at_least(1),
    ),
    _define(
        COMMON,
        5,
        "tasks.max.enforce",
        _BOOLEAN,
        True,
        Width.SHORT,
        "Enforce tasks max",
        "Accepted for Kafka Connect's sake; tasks.max is always obeyed.",
        importance=_LOW,
    ),
    *_converter(
        6, "key.converter", "Key converter class", "How keys become bytes in a topic; the worker's by default."
    ),
    *_converter(
        8, "value.converter", "Value converter class", "How values become bytes in a topic; the worker's by default."
    ),
    *_converter(
        10,
        "header.converter",
        "Header converter class",
        "How values of headers become bytes in a topic; the worker's by default.",
    ),
    _define(
        TRANSFORMS,
        12,
        "transforms",
        _LIST,
        (),
        Width.LONG,
        "Transforms",
        "The aliases of the transformations, in the order in which they are applied.",
        importance=_LOW,
        check=UniqueAliases(),
    ),
    _define(
        PREDICATES,
        13,
        "predicates",
        _LIST,
        (),
        Width.LONG,
        "Predicates",
        "The aliases of the predicates that transformations use.",
        importance=_LOW,
        check=UniqueAliases(),
    ),
    _define(
        COMMON,
        14,
        "config.action.reload",
        _STRING,
        "restart",
        Width.MEDIUM,
        "Reload Action",
        "Whether the connector is restarted when a config provider says that a value has expired.",
        importance=_LOW,
        check=one_of("none", "restart"),
    ),
    _define(
        ERRORS,
        1,
        "errors.retry.timeout",
        _LONG,
        0,
        Width.MEDIUM,
        "Retry Timeout for Errors",
        "For how many milliseconds a conversion or transformation that failed is tried again; -1 for ever.",
    ),
    _define(
        ERRORS,
        2,
        "errors.retry.delay.max.ms",
        _LONG,
        60000,
        Width.MEDIUM,
        "Maximum Delay Between Retries for Errors",
        "The longest pause between two tries, in milliseconds.",
    ),
    _define(
        ERRORS,
        3,
        "errors.tolerance",
        _STRING,
        "none",
        Width.SHORT,
        "Error Tolerance",
        "What becomes of a record that cannot be processed: `none` fails the task, `all` leaves the record out.",
        check=one_of("none", "all"),
    ),
    _define(
        ERRORS,
        4,
        "errors.log.enable",
        _BOOLEAN,
        False,
        Width.SHORT,
        "Log Errors",
        "Whether each record that is left out is logged.",
    ),
    _define(
        ERRORS,
        5,
        "errors.log.include.messages",
        _BOOLEAN,
        False,
        Width.SHORT,
        "Log Error Details",
        "Whether the log line shows where the record came from and, for a source, what is in it.",
    ),
)

_SOURCE: Final = (
    _define(
        TOPIC_CREATION,
        1,
        "topic.creation.groups",
        _LIST,
        (),
        Width.LONG,
        "Topic Creation Groups",
        "The groups of topics that are created with settings of their own.",
        importance=_LOW,
        check=UniqueAliases(),
    ),
    _define(
        EXACTLY_ONCE,
        2,
        "exactly.once.support",
        _STRING,
        "requested",
        Width.SHORT,
        "Exactly once support",
        "Accepted for Kafka Connect's sake; sources always write exactly once.",
        check=one_of_ignoring_case("REQUIRED", "REQUESTED"),
    ),
    _define(
        EXACTLY_ONCE,
        3,
        "transaction.boundary",
        _STRING,
        "poll",
        Width.SHORT,
        "Transaction Boundary",
        "Accepted for Kafka Connect's sake; a transaction has the rows of one round of a task.",
        check=one_of_ignoring_case("INTERVAL", "POLL", "CONNECTOR"),
    ),
    _define(
        EXACTLY_ONCE,
        4,
        "transaction.boundary.interval.ms",
        _LONG,
        None,
        Width.SHORT,
        "Transaction boundary interval",
        "Accepted for Kafka Connect's sake; see transaction.boundary.",
        importance=_LOW,
        check=OptionalAtLeast(0),
    ),
    _define(
        OFFSETS_TOPIC,
        1,
        "offsets.storage.topic",
        _STRING,
        None,
        Width.LONG,
        "Offsets topic",
        "The topic of this connector's offsets; the worker's by default.",
        importance=_LOW,
        check=non_empty,
    ),
)

_SINK: Final = (
    _define(
        COMMON,
        4,
        "topics",
        _LIST,
        (),
        Width.LONG,
        "Topics",
        "The topics to read, separated by commas.",
        importance=_HIGH,
        check=unique_and_not_empty,
    ),
    _define(
        COMMON,
        4,
        "topics.regex",
        _STRING,
        "",
        Width.LONG,
        "Topics regex",
        "A pattern of the topics to read, instead of `topics`.",
        importance=_HIGH,
        check=is_regex,
    ),
    _define(
        ERRORS,
        6,
        "errors.deadletterqueue.topic.name",
        _STRING,
        "",
        Width.MEDIUM,
        "Dead Letter Queue Topic Name",
        "The topic that records which cannot be processed are written to; none by default.",
    ),
    _define(
        ERRORS,
        7,
        "errors.deadletterqueue.topic.replication.factor",
        Kind.SHORT,
        3,
        Width.MEDIUM,
        "Dead Letter Queue Topic Replication Factor",
        "The replication factor of the dead letter queue topic, if the connector has to create it.",
    ),
    _define(
        ERRORS,
        8,
        "errors.deadletterqueue.context.headers.enable",
        _BOOLEAN,
        False,
        Width.MEDIUM,
        "Enable Error Context Headers",
        "Whether records in the dead letter queue have headers that say what was wrong (`__connect.errors.*`).",
    ),
)


def refuse_sink_topics(given: Mapping[str, str | None]) -> dict[str, Sequence[str]]:
    """What is wrong between the settings that name topics. Read from the text, as Kafka Connect does."""
    topics = [name.strip() for name in (given.get("topics") or "").split(",") if name.strip()]
    pattern = (given.get("topics.regex") or "").strip()
    dead_letters = (given.get("errors.deadletterqueue.topic.name") or "").strip()
    if topics and pattern:
        both = "topics and topics.regex are mutually exclusive options, but both are set."
        return {"topics": [both], "topics.regex": [both]}
    if not topics and not pattern:
        neither = "Must configure one of topics or topics.regex"
        return {"topics": [neither], "topics.regex": [neither]}
    if dead_letters in topics:
        shown = ", ".join(dict.fromkeys(topics))
        return {
            "topics": [
                f"The DLQ topic '{dead_letters}' may not be included in the list of topics ('topics=[{shown}]')"
                " consumed by the connector"
            ]
        }
    if dead_letters and pattern and _matches(pattern, dead_letters):
        return {
            "topics.regex": [
                f"The DLQ topic '{dead_letters}' may not be matched by the regex for the topics"
                f" ('topics.regex={pattern}') consumed by the connector"
            ]
        }
    return {}


def _matches(pattern: str, topic: str) -> bool:
    try:
        return re.fullmatch(pattern, topic) is not None
    except re.error:
        return False  # the check of topics.regex itself reports it


def topic_creation_settings(group: str, *, is_default: bool) -> Settings:
    """The settings of one group of `topic.creation.groups`, or of the group `default`, which takes all other topics."""
    unset: Any = REQUIRED if is_default else None
    return Settings(
        (
            Setting(
                "include",
                _LIST,
                (".*",) if is_default else (),
                "Patterns of the topics that belong to the group.",
                _LOW,
                are_regexes,
                width=Width.LONG,
                display_name=f"Inclusion Topic Pattern for {group}",
            ),
            Setting(
                "exclude",
                _LIST,
                (),
                "Patterns of topics that do not belong to the group, even if `include` matches them.",
                _LOW,
                are_regexes,
                width=Width.LONG,
                display_name=f"Exclusion Topic Pattern for {group}",
            ),
            Setting(
                "replication.factor",
                Kind.SHORT,
                unset,
                "The replication factor of new topics; -1 is the broker's default.",
                _LOW,
                positive_or_default,
                width=Width.LONG,
                display_name=f"Replication Factor for Topics in {group}",
            ),
            Setting(
                "partitions",
                _INT,
                unset,
                "How many partitions new topics have; -1 is the broker's default.",
                _LOW,
                positive_or_default,
                width=Width.LONG,
                display_name=f"Partition Count for Topics in {group}",
            ),
        )
    )


SOURCE_SETTINGS: Final = Settings((*_CONNECTOR, *_SOURCE))
SINK_SETTINGS: Final = Settings((*_CONNECTOR, *_SINK))
