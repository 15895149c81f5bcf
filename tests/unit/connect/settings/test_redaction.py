"""Secrets are in no text that a person reads."""

import json
import logging
from urllib.parse import quote

from ottla.connect.settings.redaction import (
    HIDDEN,
    SECRET_NAMES,
    RedactingFormatter,
    Redactor,
    find_parts,
    hide_secrets,
)

SECRET = 'p@ss wörd/"1"'


def test_a_secret_is_hidden_in_every_form() -> None:
    redactor = Redactor([SECRET])
    for text in (SECRET, json.dumps({"a": SECRET}), repr(SECRET), f"https://ann:{quote(SECRET, safe='')}@host/"):
        assert HIDDEN in redactor.redact(f"cannot log in with {text}.")
        assert "p@ss" not in redactor.redact(text)
        assert "p%40ss" not in redactor.redact(text)


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    redactor = Redactor(["abcdef"])
    redactor.add(["abcdefgh"])
    assert redactor.redact("abcdefgh abcdef") == f"{HIDDEN} {HIDDEN}"


def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    assert Redactor(["a", ""]).redact("user a is known as bab") == f"user {HIDDEN} is known as bab"


def test_each_line_of_a_key_is_a_secret() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\n"
    assert "MIIEvQ" not in Redactor([key]).redact("line 2: MIIEvQIBADANBgkq is not base64")


def test_a_log_line_with_its_traceback_is_free_of_secrets() -> None:
    formatter = RedactingFormatter(logging.Formatter("%(message)s"), Redactor(["hunter2"]))
    try:
        raise ValueError("hunter2 was refused")
    except ValueError as error:
        record = logging.LogRecord("a", logging.INFO, "", 1, "log in as %s", ("hunter2",), (ValueError, error, None))
    text = formatter.format(record)
    assert text.startswith(f"log in as {HIDDEN}")
    assert f"{HIDDEN} was refused" in text


def test_a_configuration_is_shown_without_secrets() -> None:
    stored = {"user": "ann", "pass": "hunter2", "key": "${file:/a:b}"}
    assert hide_secrets(stored, {"pass", "key"}) == {"user": "ann", "pass": HIDDEN, "key": "${file:/a:b}"}


def test_a_password_within_a_url_is_a_secret() -> None:
    urls = {
        "jdbc:postgresql://h/db?user=ann&password=hunter2&ssl=true": "hunter2",
        "https://ann:hunter2@h:9200/": "hunter2",
        "jdbc:postgresql://h/db?password=${file:/a:b}": None,
        "https://host:8080/token": None,
    }
    for url, secret in urls.items():
        assert find_parts(url) == ({secret} if secret else set())
        assert hide_secrets({"url": url}, ())["url"] == (url.replace(secret, HIDDEN) if secret else url)


def test_undeclared_settings_are_known_by_their_names() -> None:
    for name in ("producer.override.sasl.jaas.config", "ssl.key.password", "api.token", "aws.secret.access.key"):
        assert SECRET_NAMES.search(name), name
    for name in ("topic", "key.converter", "password.policy.length", "tokens.per.second"):
        assert not SECRET_NAMES.search(name), name
