"""Users of SCRAM that a broker creates when it starts (initial.scram.credentials, `ottla up --add-scram`).

The syntax is that of kafka-storage: `SCRAM-SHA-256=[name=alice,password=secret]`, several separated by commas. A value
with a comma or a bracket stands in quotation marks. Instead of a password there may be a salted one, with its salt:
`SCRAM-SHA-512=[name=bob,salt="<base64>",saltedpassword="<base64>",iterations=8192]`.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.config import ConfigError
from ottla.security.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    derive,
    from_salted_password,
)

OPTIONS = ("name", "password", "salt", "saltedpassword", "iterations")
_VALUE = r'"[^"]*"|[^",\[\]]*'
_OPTION = rf"\s*([a-z]+)\s*=\s*({_VALUE})\s*"
_USER = re.compile(rf"\s*([A-Z0-9-]+)\s*=\s*\[((?:{_OPTION},)*{_OPTION})\]\s*(?:,|$)")
_ONE_OPTION = re.compile(rf"{_OPTION}(?:,|$)")


class FirstUser(NamedTuple):
    name: str
    mechanism: str
    iterations: int
    password: str | None
    salt: bytes | None
    salted_password: bytes | None

    def __repr__(self) -> str:
        return f"FirstUser({self.name!r}, {self.mechanism})"

    def derive(self, random_salt: bytes) -> ScramCredential:
        """The credential. It takes milliseconds: call it in a thread."""
        salt = self.salt or random_salt
        if self.salted_password is not None:
            return from_salted_password(self.mechanism, self.salted_password, salt, self.iterations)
        return derive(self.mechanism, (self.password or "").encode(), salt, self.iterations)


def read_first_users(text: str, setting: str = "initial.scram.credentials") -> list[FirstUser]:
    """ConfigError says what is wrong, and never shows a password."""
    found: list[FirstUser] = []
    position = 0
    while position < len(text.rstrip()):
        match = _USER.match(text, position)
        if match is None:
            example = "SCRAM-SHA-256=[name=alice,password=secret]"
            raise ConfigError(f"{setting}: user {len(found) + 1} is not written as in {example}")
        position = match.end()
        if match[1] not in HASHES:
            raise ConfigError(f"{setting}: {match[1]} is not one of {', '.join(HASHES)}")
        options = {option[1]: option[2].strip().strip('"') for option in _ONE_OPTION.finditer(match[2])}
        found.append(_read_user(setting, match[1], options))
    return found


def _read_user(setting: str, mechanism: str, options: Mapping[str, str]) -> FirstUser:
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ConfigError(f"{setting}: {unknown[0]!r} is not one of {', '.join(OPTIONS)}")
    name = options.get("name", "")
    if not name:
        raise ConfigError(f"{setting}: a user has no name")
    if bool(options.get("password")) == bool(options.get("saltedpassword")):
        raise ConfigError(f"{setting}: {name} needs either a password or a saltedpassword")
    salted, salt = options.get("saltedpassword"), options.get("salt")
    if salted and not salt:
        raise ConfigError(f"{setting}: the saltedpassword of {name} needs its salt")
    iterations = options.get("iterations", str(ITERATIONS_MIN))
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ConfigError(f"{setting}: the iterations of {name} are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return FirstUser(
        name,
        mechanism,
        int(iterations),
        options.get("password"),
        _decode(setting, name, salt),
        _decode(setting, name, salted),
    )


def _decode(setting: str, name: str, text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ConfigError(f"{setting}: salt and saltedpassword of {name} must be base64") from None
