"""Configurations of connectors as people edit them, and whether a worker of Kafka Connect accepts them.

A configuration is lines of key=value, or a JSON object. Values that are secret are shown as dots. Somebody who sends a
configuration back sends the dots too: `restore` puts the worker's values in their places.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ottla.console.facts.asking import ask_json

HIDDEN = "\u2022" * 6
CLASS = "connector.class"
NAME = "name"
_SECRET = re.compile(
    r"password|secret|passphrase|credential|token$|jaas|access\.key|private\.key|user\.info", re.IGNORECASE
)

Config = dict[str, str | None]


class CheckedSetting(NamedTuple):
    name: str
    value: str
    errors: list[str]


class Connect:
    """The REST API of one worker. Everything raises NoAnswer with the worker's own words."""

    def __init__(self, url: str) -> None:
        """The URL may have a user and a password before the host."""
        self._url, login = split_login(url)
        encoded = b64encode(unquote(login).encode()).decode()
        self._headers = {"Authorization": f"Basic {encoded}"} if login else None

    def ask(self, path: str, method: str = "GET", document: object = None) -> Any:
        return ask_json(self._url + path, method, document, self._headers)

    def list_connectors(self) -> dict[str, Any]:
        return dict(self.ask("/connectors?expand=status&expand=info") or {})

    def list_topics(self, name: str) -> list[str]:
        """The topics that the connector has used."""
        return sorted((self.ask(f"/connectors/{quote(name, safe='')}/topics") or {}).get(name, {}).get("topics", ()))

    def list_plugins(self) -> list[str]:
        return sorted(each["class"] for each in self.ask("/connector-plugins") if each.get("type") != "unknown")

    def suggest_config(self, plugin: str) -> Config:
        """The settings of a plug-in that have no default, to begin with."""
        found: Config = {NAME: "", CLASS: plugin, "tasks.max": "1"}
        for each in self.ask(f"/connector-plugins/{quote(plugin, safe='')}/config"):
            if each.get("required") and each["name"] not in found:
                found[each["name"]] = ""
        return found

    def check(self, config: Config) -> list[CheckedSetting]:
        """The settings that are wrong."""
        plugin = quote(config.get(CLASS) or "", safe="")
        answer = self.ask(f"/connector-plugins/{plugin}/config/validate", "PUT", config)
        values = [each["value"] for each in answer["configs"]]
        return [
            CheckedSetting(each["name"], "" if each["value"] is None else str(each["value"]), list(each["errors"]))
            for each in values
            if each["errors"]
        ]

    def restore(self, name: str, config: Config) -> Config:
        """The configuration with the worker's own values where people were shown dots."""
        if HIDDEN not in config.values():
            return config
        stored = self.ask(f"/connectors/{quote(name, safe='')}/config") or {}
        return {key: stored.get(key) if text == HIDDEN else text for key, text in config.items()}


def split_login(url: str) -> tuple[str, str]:
    """A URL without the user and the password that it has and without a slash at its end, and these two."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    place, slash, path = rest.partition("/")
    login, _, host = place.rpartition("@")
    return f"{scheme}{separator}{host}{slash}{path}", login


def is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def hide(config: Mapping[str, str | None]) -> Config:
    """References to config providers, ${file:...}, are no secrets."""
    return {
        name: HIDDEN if text and is_secret(name) and not text.startswith("${") else text
        for name, text in config.items()
    }


def parse_config(text: str) -> Config:
    """Lines of key=value, with # for remarks, or a JSON object. Raises ValueError."""
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    found: Config = {}
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            key, equals, value = line.partition("=")
            if not equals or not key.strip():
                raise ValueError(f"{line.strip()!r} is not key=value")
            found[key.strip()] = value.strip()
    return found


def _parse_json(text: str) -> Config:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the configuration is no JSON: {error}") from None
    if isinstance(found.get("config"), dict):  # as POST /connectors takes it
        found = {NAME: found.get(NAME), **found["config"]}
    if any(isinstance(value, dict | list) for value in found.values()):
        raise ValueError("a setting is text, a number, true, false or null")
    return {
        key: value if value is None or isinstance(value, str) else json.dumps(value) for key, value in found.items()
    }


def write_config(config: Mapping[str, str | None]) -> str:
    """Lines, or JSON if a value cannot stand in a line."""
    if all(text is not None and text == text.strip() and len(text.splitlines()) < 2 for text in config.values()):
        return "".join(f"{name}={text}\n" for name, text in config.items())
    return json.dumps(dict(config), indent=2, ensure_ascii=False)
