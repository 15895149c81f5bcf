"""Users and passwords of the REST API, as Kafka Connect's BasicAuthSecurityRestExtension has them.

The users are in a file of properties, `user=password`. Which file that is says the section `KafkaConnect` of a JAAS
file, whose name is the worker's property `java.security.auth.login.config`, or that option of Java in KAFKA_OPTS.
"""

import base64
import binascii
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.config.properties import read_properties
from ottla.config.settings import ConfigError
from ottla.connect.errors import BadConfig
from ottla.connect.rest.routing import RestError

EXTENSIONS: Final = "rest.extension.classes"
LOGIN_CONFIG: Final = "java.security.auth.login.config"
_EXTENSION: Final = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
_MODULE: Final = re.compile(r"\bKafkaConnect\s*\{\s*(?P<module>[\w.]+)\s+\w+\s(?P<options>[^;}]*);", re.DOTALL)
_FILE: Final = re.compile(r"\bfile\s*=\s*(?:\"([^\"]+)\"|'([^']+)'|(\S+))")
_OPTION: Final = re.compile(r"-D" + re.escape(LOGIN_CONFIG) + r"=(\S+)")
_COMMENTS: Final = re.compile(r"/\*.*?\*/|^\s*(//|#).*?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Users:
    """Who may use the API. Everybody with one of these names and its password may do everything."""

    passwords: Mapping[str, str] = field(repr=False)

    def check(self, headers: Mapping[str, str]) -> None:
        """RestError with status 401, unless the request has the name and the password of a user."""
        kind, _, text = headers.get("authorization", "").partition(" ")
        try:
            name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            name, colon, password = "", "", ""
        known = self.passwords.get(name, "")
        is_right = hmac.compare_digest(known.encode(), password.encode())
        if kind.lower() != "basic" or not colon or name not in self.passwords or not is_right:
            raise RestError(401, "User cannot access the resource.", {"WWW-Authenticate": 'Basic realm="connect"'})


def read_users(worker: Mapping[str, str]) -> Users | None:
    """None if the worker names no extension. BadConfig if its extension or its files cannot be used."""
    wanted = [each for each in map(str.strip, worker.get(EXTENSIONS, "").split(",")) if each]
    if not wanted:
        return None
    for each in wanted:
        if each not in (_EXTENSION, _EXTENSION.rpartition(".")[2]):
            raise BadConfig(f"{EXTENSIONS}={each}: extensions are Java classes; only {_EXTENSION} is supported")
    found = _OPTION.search(os.environ.get("KAFKA_OPTS", ""))
    place = worker.get(LOGIN_CONFIG) or (found[1] if found else "")
    if not place:
        raise BadConfig(f"{EXTENSIONS}: set {LOGIN_CONFIG} to a JAAS file with a section KafkaConnect")
    section = _MODULE.search(_COMMENTS.sub("", _read(LOGIN_CONFIG, place)))
    if section is None or not section["module"].endswith("PropertyFileLoginModule"):
        raise BadConfig(f"{LOGIN_CONFIG}={place}: it has no section KafkaConnect with a PropertyFileLoginModule")
    option = _FILE.search(section["options"])
    if option is None:
        raise BadConfig(f"{LOGIN_CONFIG}={place}: the PropertyFileLoginModule has no option file")
    file = next(filter(None, option.groups()))
    try:
        passwords = dict(read_properties(_read(LOGIN_CONFIG, file)))
    except ConfigError:
        raise BadConfig(f"{LOGIN_CONFIG}: {file} is no file of properties") from None
    if not passwords or not all(passwords.values()):
        raise BadConfig(f"{LOGIN_CONFIG}: {file} has no users, or one without a password")
    return Users(passwords)


def _read(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{name}: {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
