"""Java's .properties syntax."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import ConfigError, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("# comment\n! comment\n\n  a = b  ", {"a": "b  "}),
        ("a:b\nc d\ne\tf\ng = : h", {"a": "b", "c": "d", "e": "f", "g": ": h"}),
        ("a=1\na=2", {"a": "2"}),
        ("a = one,\\\n    two,\\\r\n\tthree\nb=c", {"a": "one,two,three", "b": "c"}),
        ("a=ends with backslash\\\\\nb=c", {"a": "ends with backslash\\", "b": "c"}),
        ("a=b\\", {"a": "b"}),
        ("key\\ with\\:signs\\==v", {"key with:signs=": "v"}),
        ('a=\\u00e9\\t\\q\\"', {"a": 'é\tq"'}),
        ("a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        ("alone", {"alone": ""}),
        ("a=b # no comment", {"a": "b # no comment"}),
        ("a=one\\\n# not a comment", {"a": "one# not a comment"}),
    ],
)
def test_syntax(text: str, expected: dict[str, str]) -> None:
    """Separators, comments, continuations and escapes as java.util.Properties reads them."""
    assert read_properties(text) == expected


def test_a_broken_escape_names_its_line() -> None:
    """This is the only syntax that java.util.Properties refuses."""
    with pytest.raises(ConfigError, match=r"line 2: a \\u escape needs four hexadecimal digits"):
        read_properties("a=b\nc=\\u12")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No file makes the parser raise anything but ConfigError."""
    with contextlib.suppress(ConfigError):
        read_properties(text)
