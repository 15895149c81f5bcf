"""The value of sasl.jaas.config: one login module with its options, in the syntax of Java's JAAS.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret";

Only Kafka's modules for PLAIN, SCRAM and OAUTHBEARER are known, and none is ever loaded: the text is only read. Any
other module is refused, such as JndiLoginModule, by which Kafka's users were attacked (CVE-2023-25194).
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.config import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

MODULES: Mapping[str, str] = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTH_MODULE,
}
"""Mechanism -> the login module that its settings name."""

FLAGS = ("required", "requisite", "sufficient", "optional")
TEXT_CHARS_MAX = 1 << 20

_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"'=;]+)|([=;]))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}


class OtherMechanism(ConfigError):
    """The module is that of another mechanism."""


class LoginModule(NamedTuple):
    name: str
    options: Mapping[str, str]


def read_login_module(setting: str, mechanism: str, text: str) -> LoginModule:
    """The module and its options. ConfigError names the setting, and never shows the text: it holds passwords."""
    words = _split(setting, text)
    if len(words) < 3 or words[-1] != (True, ";"):
        raise ConfigError(f"{setting}: it is not <login module> required <option>=<value> ... ;")
    name, flag = words[0][1], words[1][1]
    if name not in MODULES.values():
        raise ConfigError(f"{setting}: the login module {name[:200]!r} is refused; only Kafka's own are known")
    if name != MODULES[mechanism]:
        raise OtherMechanism(f"{setting}: {mechanism} needs {MODULES[mechanism]}, not {name}")
    if flag.lower() not in FLAGS:
        raise ConfigError(f"{setting}: after the login module comes one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    rest = words[2:-1]
    if len(rest) % 3:
        raise ConfigError(f"{setting}: the options are not <option>=<value>, or there is more than one login module")
    for position in range(0, len(rest), 3):
        (is_sign, key), (_, equals), (is_value_sign, value) = rest[position : position + 3]
        if is_sign or is_value_sign or equals != "=":
            raise ConfigError(f"{setting}: option {position // 3 + 1} is not <option>=<value>")
        options[key] = value
    return LoginModule(name, options)


def _split(setting: str, text: str) -> list[tuple[bool, str]]:
    """The words, each with whether it is a sign (`=` or `;`)."""
    if len(text) > TEXT_CHARS_MAX:
        raise ConfigError(f"{setting}: it has more than {TEXT_CHARS_MAX} characters")
    words, position, text = [], 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError(f"{setting}: a quotation mark is not closed")
        position = match.end()
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            words.append((False, _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), quoted)))
        else:
            words.append((match[4] is not None, match[3] or match[4]))
    return words
