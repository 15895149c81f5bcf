"""The settings of Confluent's HTTP source and sink."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.connect.connectors.http.server import Server, parse_headers, parse_statuses
from ottla.connect.settings.checks import at_least, between, non_empty, one_of, one_of_ignoring_case
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting, Settings
from ottla.connect.transforms.java_regex import compile_java, compile_replacement

SIMPLE_INCREMENTING: Final = "SIMPLE_INCREMENTING"
CHAINING: Final = "CHAINING"
CURSOR_PAGINATION: Final = "CURSOR_PAGINATION"
NEXT_LINK: Final = "NEXT_LINK"
_LOW, _MEDIUM, _HIGH = Importance.LOW, Importance.MEDIUM, Importance.HIGH


def _setting(
    name: str, kind: Kind, default: Any, doc: str, check: Any = None, importance: Importance = _LOW
) -> Setting:
    return Setting(name, kind, default, doc, importance, check)


def _is_url(name: str, value: Any) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("it is no URL that begins with http:// or https://")


def _are_statuses(name: str, value: Any) -> None:
    parse_statuses(value)


_COMMON: Final = (
    _setting(
        "auth.type",
        Kind.STRING,
        "NONE",
        "NONE, BASIC (connection.user and connection.password) or BEARER (bearer.token).",
        one_of_ignoring_case("NONE", "BASIC", "BEARER", "OAUTH2", "API_KEY"),
        _HIGH,
    ),
    _setting("connection.user", Kind.STRING, None, "The user of BASIC.", None, _HIGH),
    _setting("connection.password", Kind.PASSWORD, None, "The user's password.", None, _HIGH),
    _setting("bearer.token", Kind.PASSWORD, None, "The token of BEARER.", None, _HIGH),
    _setting(
        "retry.on.status.codes",
        Kind.STRING,
        "408,429,500-",
        "Statuses of a server that is busy or away, after which a request is repeated.",
        _are_statuses,
    ),
    _setting(
        "max.retries",
        Kind.INT,
        5,
        "How often a request is repeated within a task. Then the task is repeated, with longer and longer pauses.",
        at_least(0),
    ),
    _setting("retry.backoff.ms", Kind.INT, 3000, "The pause before a request is repeated.", at_least(1)),
    _setting("http.connect.timeout.ms", Kind.INT, 30_000, "How long to wait for a connection.", at_least(1)),
    _setting("http.request.timeout.ms", Kind.INT, 30_000, "How long to wait for an answer.", at_least(1)),
    _setting("https.ssl.truststore.location", Kind.STRING, None, "A PEM file of authorities to trust."),
)

_SINK: Final = (
    _setting(
        "http.api.url",
        Kind.STRING,
        REQUIRED,
        "The URL. ${topic}, ${key} and ${field.of.the.value} in it are replaced.",
        _is_url,
        _HIGH,
    ),
    _setting(
        "request.method",
        Kind.STRING,
        "POST",
        "POST, PUT or PATCH.",
        one_of_ignoring_case("POST", "PUT", "PATCH"),
        _HIGH,
    ),
    _setting("headers", Kind.STRING, "", "Headers of requests: Name:value, separated by header.separator."),
    _setting("header.separator", Kind.STRING, "|", "What separates headers.", non_empty),
    _setting("request.body.format", Kind.STRING, "string", "string or json.", one_of("string", "json"), _MEDIUM),
    _setting("batch.max.size", Kind.INT, 1, "Records of a request at most.", between(1, 100_000), _HIGH),
    _setting("batch.prefix", Kind.STRING, "", "What a body begins with."),
    _setting("batch.suffix", Kind.STRING, "", "What a body ends with."),
    _setting("batch.separator", Kind.STRING, ",", "What is between the records of a body."),
    _setting("batch.json.as.array", Kind.BOOLEAN, False, "Whether a body is a JSON array of its records."),
    _setting("batch.key.pattern", Kind.STRING, "${key}-${topic}", "Records for which this is the same share requests."),
    _setting("regex.patterns", Kind.STRING, "", "Patterns to replace in the text of a record."),
    _setting("regex.replacements", Kind.STRING, "", "What each pattern is replaced by."),
    _setting("regex.separator", Kind.STRING, "~", "What separates patterns and replacements.", non_empty),
    _setting(
        "behavior.on.null.values",
        Kind.STRING,
        "ignore",
        "What a record without a value does: ignore, log, fail or delete (a DELETE request to its URL).",
        one_of_ignoring_case("ignore", "log", "fail", "delete"),
    ),
    _setting(
        "behavior.on.error",
        Kind.STRING,
        "fail",
        "What becomes of records that the server refuses: fail (or a dead letter, by errors.tolerance), ignore or log.",
        one_of_ignoring_case("fail", "ignore", "log"),
    ),
    _setting(
        "idempotency.header",
        Kind.STRING,
        "Idempotency-Key",
        "A header that is the same for the same records: a server can recognise a repetition by it. Empty for none.",
    ),
    *_COMMON,
)

_SOURCE: Final = (
    _setting("url", Kind.STRING, REQUIRED, "The URL. ${entityName} and ${offset} are replaced.", _is_url, _HIGH),
    _setting("entity.names", Kind.LIST, (), "What ${entityName} stands for; each is read for itself.", None, _HIGH),
    _setting(
        "topic.name.pattern",
        Kind.STRING,
        REQUIRED,
        "The topic to write to. ${entityName} is replaced.",
        non_empty,
        _HIGH,
    ),
    _setting("http.request.method", Kind.STRING, "GET", "GET or POST.", one_of_ignoring_case("GET", "POST"), _HIGH),
    _setting("http.request.headers", Kind.STRING, "", "Headers: Name:value, separated by the separator."),
    _setting("http.request.headers.separator", Kind.STRING, "|", "What separates headers.", non_empty),
    _setting("http.request.sensitive.headers", Kind.PASSWORD, None, "Headers whose values are secret."),
    _setting("http.request.parameters", Kind.STRING, "", "name=value, separated by the separator."),
    _setting("http.request.parameters.separator", Kind.STRING, "&", "What separates parameters.", non_empty),
    _setting("http.request.body", Kind.STRING, "", "The body of a POST request."),
    _setting(
        "http.offset.mode",
        Kind.STRING,
        SIMPLE_INCREMENTING,
        "Where the next request goes on: SIMPLE_INCREMENTING counts records, CHAINING takes the offset of the last"
        " record, CURSOR_PAGINATION a cursor of the answer, NEXT_LINK the URL of the next page.",
        one_of_ignoring_case(SIMPLE_INCREMENTING, CHAINING, CURSOR_PAGINATION, NEXT_LINK),
        _HIGH,
    ),
    _setting("http.initial.offset", Kind.STRING, "", "The first offset; 0 for SIMPLE_INCREMENTING."),
    _setting("http.offset.json.pointer", Kind.STRING, "", "Where a record has its offset, of CHAINING."),
    _setting("http.response.data.json.pointer", Kind.STRING, "", "Where an answer has its records; all of it."),
    _setting(
        "http.next.page.json.pointer",
        Kind.STRING,
        "",
        "Where an answer has the cursor or the URL of the next page; for NEXT_LINK its header Link by default.",
    ),
    _setting("request.interval.ms", Kind.LONG, 15_000, "How often the server is asked.", at_least(10)),
    *_COMMON,
)

_ONLY: Final[Mapping[str, Sequence[str]]] = {
    "auth.type": ("NONE", "BASIC", "BEARER"),
    "https.ssl.keystore.location": (),
    "https.ssl.truststore.type": ("PEM",),
    "http.proxy.host": (),
    "http.proxy.url": (),
    "oauth2.token.url": (),
    "reporter.result.topic.name": (),
    "reporter.error.topic.name": (),
    "ssl.enabled": ("FALSE", "TRUE"),
}
"""Settings of Confluent's that are known, and the values that can be obeyed."""
_REASONS: Final = {
    "reporter.result.topic.name": "answers are not kept",
    "reporter.error.topic.name": "errors.deadletterqueue.topic.name keeps what was refused",
}


def make_server(config: Mapping[str, Any], headers: Sequence[tuple[str, str]]) -> Server:
    kind = config["auth.type"].upper()
    return Server(
        tuple(headers),
        config["connection.user"] if kind == "BASIC" else None,
        config["connection.password"] if kind == "BASIC" else None,
        config["bearer.token"] if kind == "BEARER" else None,
        config["http.connect.timeout.ms"] / 1000,
        config["http.request.timeout.ms"] / 1000,
        config["https.ssl.truststore.location"] or None,
        parse_statuses(config["retry.on.status.codes"]),
    )


def list_source_headers(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    separator = config["http.request.headers.separator"]
    secret = config["http.request.sensitive.headers"] or ""
    return [*parse_headers(config["http.request.headers"], separator), *parse_headers(secret, separator)]


def list_replacements(config: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Patterns and what they are replaced by. ValueError if the two lists do not fit together."""
    separator = config["regex.separator"]
    patterns = [each for each in config["regex.patterns"].split(separator) if each]
    texts = config["regex.replacements"].split(separator) if patterns else []
    if len(texts) != len(patterns):
        raise ValueError(f"there are {len(patterns)} patterns and {len(texts)} replacements")
    compiled = [compile_java(each) for each in patterns]
    return [(pattern, compile_replacement(pattern, text)) for pattern, text in zip(compiled, texts, strict=True)]


def _refuse_common(config: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    errors: dict[str, Sequence[str]] = {}
    kind = config["auth.type"].upper()
    needed = {"BASIC": "connection.user", "BEARER": "bearer.token"}.get(kind)
    if needed and not config[needed]:
        errors[needed] = [f"auth.type={kind} needs it"]
    return errors


def _refuse_sink(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    errors = _refuse_common(config)
    try:
        parse_headers(config["headers"], config["header.separator"])
    except ValueError as error:
        errors["headers"] = [str(error)]
    try:
        list_replacements(config)
    except ValueError as error:
        errors["regex.replacements"] = [str(error)]
    return errors


def _refuse_source(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    errors = _refuse_common(config)
    try:
        list_source_headers(config)
    except ValueError as error:
        errors["http.request.headers"] = [str(error)]
    mode = config["http.offset.mode"].upper()
    if mode == SIMPLE_INCREMENTING and not (config["http.initial.offset"] or "0").isdecimal():
        errors["http.initial.offset"] = [f"{mode} counts, so it is a number"]
    if mode == CHAINING and not config["http.offset.json.pointer"]:
        errors["http.offset.json.pointer"] = [f"{mode} needs it"]
    if mode == CURSOR_PAGINATION and not config["http.next.page.json.pointer"]:
        errors["http.next.page.json.pointer"] = [f"{mode} needs it"]
    for name in ("http.offset.json.pointer", "http.response.data.json.pointer", "http.next.page.json.pointer"):
        if config[name] and not config[name].startswith("/"):
            errors[name] = ["a JSON pointer begins with a slash"]
    templates = [config[each] for each in ("url", "topic.name.pattern", "http.request.body", "http.request.parameters")]
    if any("${entityName}" in each for each in templates) and not config["entity.names"]:
        errors["entity.names"] = ["${entityName} is used, and there are no names"]
    return errors


SINK_SETTINGS: Final = Settings(_SINK, _refuse_sink, _ONLY, reasons=_REASONS)
SOURCE_SETTINGS: Final = Settings(_SOURCE, _refuse_source, _ONLY, reasons=_REASONS)
