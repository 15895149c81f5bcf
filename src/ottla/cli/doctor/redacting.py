"""Takes secrets out of texts that leave the machine."""

import re
from collections.abc import Iterable, Mapping

from ottla.client.security import HIDDEN, is_secret

SHORTEST_SECRET = 4
"""Shorter values are not looked for in texts: they would be found everywhere."""

_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]*"),  # a JSON Web Token
    re.compile(r"(?<=://)[^\s/@]+(?=@)"),  # user and password in a URL
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?<=basic )[\w+/=]{8,}"),
)
_PAIR = re.compile(
    r"""(?i)(["']?[\w.-]*(?:password|passwd|passphrase|secret|credential|token|jaas|user\.info)[\w.-]*["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}]+)"""
)


class Redactor:
    """Knows the secret values of some settings, and hides them wherever they stand."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {secret.strip() for secret in secrets}
        self._secrets = sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=len, reverse=True)

    def redact(self, text: str) -> str:
        for pattern in _PATTERNS:
            text = pattern.sub(HIDDEN, text)
        text = _PAIR.sub(_hide_value, text)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def _hide_value(match: re.Match[str]) -> str:
    quote = match[2][0] if match[2][0] in "\"'" else ""
    return f"{match[1]}{quote}{HIDDEN}{quote}"


def find_secrets(settings: Mapping[str, str]) -> list[str]:
    """The secret values among settings; of user:password also the parts, of a JAAS line also what is quoted in it."""
    found = []
    for name, value in settings.items():
        if is_secret(name):
            found += [value, *value.partition(":")[2:], *re.findall(r'"([^"]*)"', value)]
    return [each for each in found if each]
