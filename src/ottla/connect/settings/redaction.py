"""Keeps secrets out of log lines, traces, statuses and answers.

A secret is the value of a PASSWORD setting, or whatever came out of a config provider. One `Redactor` of a worker knows
the secrets of all its connectors; it replaces them wherever they appear in a text, also as a part of a URL or of JSON.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "[hidden]"

SECRET_NAMES: Final = re.compile(
    r"(password|passwd|passphrase|secret|credential|token|jaas\.config|private\.?key|access\.?key|api\.?key"
    r"|ssl\.keystore\.key)([._-]?(value|key))?$",
    re.IGNORECASE,
)
"""Names of settings that hold secrets, for settings that nobody has declared, such as producer.override.*."""

_IN_VALUES: Final = re.compile(
    r"(?<=://)[^/?#@:\s]*:(?P<login>[^/?#@\s]+)(?=@)|\b(?:password|passwd|secret|token)=(?P<part>[^&;,\s\"']+)",
    re.IGNORECASE,
)
"""Secrets that are part of another setting's value: of a URL, or of a connection string."""

_SHORT: Final = 4
"""A secret below so many characters is replaced only where it stands alone: `a` is in every sentence."""


class Redactor:
    """Safe to use from several threads."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self._secrets: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        found = frozenset(form for secret in secrets for form in _list_forms(secret))
        with self._lock:
            if found <= self._secrets:
                return
            self._secrets |= found
            longest_first = sorted(self._secrets, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(_to_pattern, longest_first)))

    def redact(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(HIDDEN, text)

    def redact_document(self, document: Any) -> Any:
        """A document of JSON, with all its texts redacted but the names of fields."""
        match document:
            case str():
                return self.redact(document)
            case list():
                return [self.redact_document(each) for each in document]
            case dict():
                return {name: self.redact_document(each) for name, each in document.items()}
            case _:
                return document


def _list_forms(secret: str) -> set[str]:
    """The secret as it may appear in a text: as it is, in JSON, in a URL, as Python shows it, and line by line."""
    lines = [line.strip() for line in secret.splitlines() if len(line.strip()) >= 2 * _SHORT]
    whole = [secret, secret.strip(), *(lines if len(lines) > 1 else [])]
    forms = {
        form
        for text in whole
        for form in (text, json.dumps(text)[1:-1], repr(text)[1:-1], quote(text, safe=""), quote_plus(text))
    }
    return {form for form in forms if form.strip() and form != HIDDEN}


def _to_pattern(form: str) -> str:
    escaped = re.escape(form)
    return rf"(?<!\w){escaped}(?!\w)" if len(form) < _SHORT else escaped


def hide_secrets(config: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """A configuration as it may be shown: the values of the settings of these names are hidden, and so are the
    passwords in URLs and connection strings. References to config providers are shown."""
    hidden = set(names)
    return {
        name: HIDDEN if name in hidden and not is_reference(text) else _IN_VALUES.sub(_hide_part, text)
        for name, text in config.items()
    }


def find_parts(text: str) -> set[str]:
    """The secrets within a value, such as the password in a URL."""
    found = {match["login"] or match["part"] for match in _IN_VALUES.finditer(text)}
    return {part for part in found if not is_reference(part)}


def _hide_part(match: re.Match[str]) -> str:
    secret = match["login"] or match["part"]
    return match[0] if is_reference(secret) else match[0].removesuffix(secret) + HIDDEN


def is_reference(text: str | None) -> bool:
    """Whether the text is nothing but a reference to a config provider, which is no secret itself."""
    return text is not None and re.fullmatch(r"\$\{[^}]*\}", text.strip()) is not None


class RedactingFormatter(logging.Formatter):
    """Formats as another formatter does, then removes the secrets: from messages, their arguments and tracebacks."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self._inner = inner
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(self._inner.format(record))
