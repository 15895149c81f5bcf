"""What an app can be told besides its topology, checked when it is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from ottla.client.defaults import BOOTSTRAP, DEFAULT_BOOTSTRAP, find_default_connection
from ottla.streams import later
from ottla.streams.errors import StreamsError, TopologyError

FAIL, SKIP, DEAD_LETTER = "fail", "skip", "dead-letter"
EXACTLY_ONCE: Final = "exactly-once"

_NUMBERS = ("batch_rows", "interval_ms")
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_TOPIC_LENGTH_MAX: Final = 249
_APP_LENGTH_MAX: Final = 100
"""Names of internal topics begin with the name of the app and must not become too long."""


@dataclass(frozen=True)
class AppOptions:
    """The settings of an app. `App` describes them."""

    name: str
    bootstrap: str = DEFAULT_BOOTSTRAP
    master: str = "local[*]"
    guarantee: str = EXACTLY_ONCE
    on_bad_record: str = FAIL
    on_error: str = FAIL
    on_late: str = SKIP
    dead_letter_topic: str | None = None
    state_dir: str | None = None
    http: str = "127.0.0.1:0"
    batch_rows: int = 100_000
    interval_ms: int = 50
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Its passwords are in no message that shows an app."""
    config: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_app_name(self.name)
        if self.guarantee == "at-least-once":
            later.refuse(later.AT_LEAST_ONCE, "App")
        _check_choice("guarantee", self.guarantee, (EXACTLY_ONCE,))
        _check_choice("on_bad_record", self.on_bad_record, (FAIL, SKIP, DEAD_LETTER))
        _check_choice("on_error", self.on_error, (FAIL, SKIP, DEAD_LETTER))
        _check_choice("on_late", self.on_late, (SKIP, DEAD_LETTER))
        for address in str(self.bootstrap).split(","):
            _check_address("bootstrap", address)
        _check_address("http", self.http)
        _check_text("master", self.master)
        if not self.master.startswith(("local", "spark://")):
            later.refuse(later.OTHER_CLUSTERS, f"App: master={self.master!r}")
        if self.state_dir is not None:
            _check_text("state_dir", self.state_dir)
        _check_number("batch_rows", self.batch_rows, 1)
        _check_number("interval_ms", self.interval_ms, 0)
        _check_mapping("settings", self.settings, "Kafka client settings such as {'security.protocol': 'SSL'}")
        _check_mapping("config", self.config, "Spark settings such as {'spark.executor.memory': '2g'}")
        if self.dead_letter_topic is not None:
            check_topic_name(self.dead_letter_topic, "dead_letter_topic")

    @property
    def dead_letters(self) -> str:
        """The topic of records and rows that could not be handled."""
        return self.dead_letter_topic or f"{self.name}-dead-letters"


_overrides: dict[str, str] = {}


def override_options(given: Mapping[str, str]) -> None:
    """Options for all apps that are made later in this process, whatever they say themselves: names of options of
    `App`, settings of Spark (spark.*), or settings of the Kafka client."""
    names = {each.name for each in fields(AppOptions)} - {"name", "settings", "config"}
    unknown = [name for name in given if name not in names and "." not in name]
    if unknown:
        raise StreamsError(f"App: there is no option {unknown[0]!r}; there are {', '.join(sorted(names))}")
    _overrides.clear()
    _overrides.update(given)


def make_options(**given: Any) -> AppOptions:
    """The options that an app was given, with those that override them."""
    for name, text in _overrides.items():
        if name.startswith("spark."):
            given["config"] = {**given.get("config", {}), name: text}
        elif "." in name:
            given["settings"] = {**given.get("settings", {}), name: text}
        else:
            given[name] = int(text) if name in _NUMBERS and text.isdecimal() else text
    if given.get("bootstrap") is None:
        given |= _find_cluster(given.get("settings") or {})
    return AppOptions(**given)


def _find_cluster(settings: object) -> dict[str, Any]:
    """Address and settings of an app that was given no address: those of its settings, or of the command line."""
    if not isinstance(settings, Mapping):
        return {"bootstrap": DEFAULT_BOOTSTRAP}  # the settings are refused later, with their own message
    if settings.get(BOOTSTRAP):
        return {"bootstrap": settings[BOOTSTRAP]}
    try:
        found = find_default_connection()
    except ValueError as error:
        raise StreamsError(f"App: {error}") from None
    return {"bootstrap": found.pop(BOOTSTRAP), "settings": found | dict(settings)}


def check_app_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise StreamsError(f"App: the name {name!r} must consist of letters, digits, '.', '_' and '-'")
    if len(name) > _APP_LENGTH_MAX:
        raise StreamsError(f"App: the name is {len(name)} characters long; {_APP_LENGTH_MAX} are possible")


def check_topic_name(topic: object, what: str) -> None:
    """Checks a name by Kafka's rules. The error begins with `what`, which names the operator."""
    if not isinstance(topic, str) or not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise TopologyError(f"{what}: {topic!r} cannot name a topic; use letters, digits, '.', '_' and '-'")
    if len(topic) > _TOPIC_LENGTH_MAX:
        raise TopologyError(f"{what}: {topic[:40]}... is longer than {_TOPIC_LENGTH_MAX} characters")


def _check_choice(what: str, given: object, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise StreamsError(f"App: {what}={given!r}: it can be {' or '.join(map(repr, choices))}")


def _check_address(what: str, address: object) -> None:
    host, _, port = address.strip().rpartition(":") if isinstance(address, str) else ("", "", "")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise StreamsError(f"App: {what}={address!r}: an address is a host and a port, such as 'localhost:9092'")


def _check_text(what: str, given: object) -> None:
    if not isinstance(given, str) or not given.strip():
        raise StreamsError(f"App: {what}={given!r}: it must be a text")


def _check_number(what: str, given: object, least: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise StreamsError(f"App: {what}={given!r}: it must be a whole number from {least} on")


def _check_mapping(what: str, given: object, example: str) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise StreamsError(f"App: {what} must be a dictionary of {example}")
