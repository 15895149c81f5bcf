"""Values of settings are parsed and refused as Kafka does, with Kafka's sentences."""

import pytest

from ottla.connect.errors import BadConfig
from ottla.connect.settings.checks import at_least, one_of
from ottla.connect.settings.definition import REQUIRED, Kind, Password, Setting, Settings
from ottla.connect.settings.parsing import parse, parse_value, read_setting, write_value
from ottla.connect.settings.validation import check_settings


def make(kind: Kind, default: object = None, **more: object) -> Setting:
    return Setting("x", kind, default, "", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.SHORT, "-32768", -32768),
        (Kind.INT, "+7", 7),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, "1.5f", 1.5),
        (Kind.LIST, " a , b,,c", ["a", "b", "", "c"]),
        (Kind.LIST, "  ", []),
        (Kind.STRING, "  a b ", "a b"),
    ],
)
def test_a_text_becomes_the_value_that_kafka_makes_of_it(kind: Kind, text: str, value: object) -> None:
    assert parse_value(make(kind), text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Kind.BOOLEAN, "yes", "Expected value to be either true or false"),
        (Kind.SHORT, "32768", "Not a number of type SHORT"),
        (Kind.INT, "2147483648", "Not a number of type INT"),
        (Kind.INT, "1.0", "Not a number of type INT"),
        (Kind.INT, "1_000", "Not a number of type INT"),
        (Kind.INT, "", "Not a number of type INT"),
        (Kind.LONG, "9" * 5000, "Not a number of type LONG"),
        (Kind.DOUBLE, "many", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "", "Not a number of type DOUBLE"),
    ],
)
def test_a_wrong_text_is_refused_with_kafkas_sentence(kind: Kind, text: str, reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_value(make(kind), text)
    assert str(raised.value) == f"Invalid value {text} for configuration x: {reason}"


def test_a_number_that_cannot_be_read_is_reported_by_its_check_too() -> None:
    """Kafka's range check sees null then, and programs count the errors."""
    _, errors = read_setting(make(Kind.INT, 1, check=at_least(1)), {"x": "abc"})
    assert errors == [
        "Invalid value abc for configuration x: Not a number of type INT",
        "Invalid value null for configuration x: Value must be non-null",
    ]


def test_what_is_missing_has_its_default_or_is_an_error() -> None:
    assert read_setting(make(Kind.INT, 3), {}) == (3, [])
    missing = 'Missing required configuration "x" which has no default value.'
    assert read_setting(make(Kind.STRING, REQUIRED), {}) == (None, [missing])


def test_a_password_is_in_no_message_and_no_answer() -> None:
    setting = make(Kind.PASSWORD, None, check=one_of("a"))
    value, errors = read_setting(setting, {"x": "hunter2"})
    assert value == "hunter2"
    assert repr(value) == "[hidden]"
    assert write_value(value) == "[hidden]"
    assert errors == ["Invalid value [hidden] for configuration x: String must be one of: a"]


def test_parse_returns_all_values_and_raises_all_errors_at_once() -> None:
    settings = Settings(
        (Setting("a", Kind.INT, 1, ""), Setting("b", Kind.BOOLEAN, REQUIRED, ""), Setting("p", Kind.PASSWORD, None, ""))
    )
    values = parse(settings, {"b": "true", "other": "7", "p": "s"})
    assert values == {"a": 1, "b": True, "other": "7", "p": "s"}
    assert isinstance(values["p"], Password)
    with pytest.raises(BadConfig) as raised:
        parse(settings, {"a": "x"})
    assert str(raised.value).splitlines() == [
        "Invalid value x for configuration a: Not a number of type INT",
        'Missing required configuration "b" which has no default value.',
    ]


def test_a_check_over_several_settings_is_asked_when_each_alone_is_right() -> None:
    settings = Settings(
        (Setting("low", Kind.INT, 1, ""), Setting("high", Kind.INT, 2, "")),
        refuse=lambda values: {"high": ["must be above low"]} if values["high"] <= values["low"] else {},
    )
    assert parse(settings, {})["high"] == 2
    with pytest.raises(BadConfig, match="high: must be above low"):
        parse(settings, {"high": "0"})


def test_settings_that_cannot_be_obeyed_are_named_whatever_else_is_wrong() -> None:
    # They were named only when nothing else was wrong, and the harmless value had to be written like ours.
    settings = Settings(
        (Setting("a", Kind.INT, 1, ""),),
        harmless={"mode": ("plain", "none"), "report.topic": ()},
        refused_prefixes=("mask.",),
        reasons={"report.topic": "answers are not kept"},
    )
    parse(settings, {"mode": " PLAIN ", "report.topic": "", "other": "x"})
    given = {"a": "x", "mode": "fast", "report.topic": "r", "mask.b": "1"}
    expected = {
        "a": "Invalid value x for configuration a: Not a number of type INT",
        "mode": "mode=fast is not supported",
        "report.topic": "report.topic=r is not supported; answers are not kept",
        "mask.b": "mask.b=1 is not supported",
    }
    with pytest.raises(BadConfig) as raised:
        parse(settings, given)
    assert str(raised.value).splitlines() == list(expected.values())
    assert {name: each.errors for name, each in check_settings(settings, given).items()} == {
        name: [error] for name, error in expected.items()
    }
