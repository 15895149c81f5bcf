"""Where the REST server listens, and what it tells browsers: properties of the worker, by Kafka Connect's names."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.client.security import translate_settings
from ottla.client.stores import make_server_context
from ottla.connect.errors import BadConfig
from ottla.connect.rest.basic_auth import Users, read_users
from ottla.connect.rest.guard import Guard, is_loopback
from ottla.connect.settings.definition import Importance, Kind, Setting, Settings
from ottla.connect.settings.parsing import parse

PORT: Final = 8083
LISTENERS: Final = "listeners"
ADMIN_LISTENERS: Final = "admin.listeners"
_HTTPS: Final = "listeners.https."

REST_SETTINGS: Final = Settings(
    (
        Setting(
            LISTENERS,
            Kind.LIST,
            (f"http://127.0.0.1:{PORT}",),
            "Where the REST server listens, such as http://:8083 for every address of this machine, or https://:8443"
            " with a certificate (listeners.https.ssl.*). Without rest.extension.classes there is no password: whoever"
            " reaches it can do everything.",
        ),
        Setting(
            ADMIN_LISTENERS,
            Kind.LIST,
            None,
            "Where /admin is answered: with the rest by default, nowhere if it is empty, or on listeners of its own.",
        ),
        Setting(
            "access.control.allow.origin",
            Kind.STRING,
            "",
            "The sites whose pages may use the API in a browser, separated by commas; * for all, none by default.",
            Importance.LOW,
        ),
        Setting(
            "access.control.allow.methods",
            Kind.STRING,
            "",
            "The methods that such pages may use; GET, POST and HEAD by default.",
            Importance.LOW,
        ),
        Setting(
            "response.http.headers.config",
            Kind.STRING,
            "",
            "Headers of every answer: `add X-Name: value`, separated by commas.",
            Importance.LOW,
        ),
        Setting("topic.tracking.enable", Kind.BOOLEAN, True, "Whether topics of connectors are shown.", Importance.LOW),
        Setting(
            "topic.tracking.allow.reset",
            Kind.BOOLEAN,
            True,
            "Whether users may reset the topics of a connector.",
            Importance.LOW,
        ),
    )
)


@dataclass(frozen=True)
class Listener:
    host: str
    """Empty: every address of this machine."""
    port: int
    is_encrypted: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_encrypted else 'http'}://{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


@dataclass(frozen=True)
class RestOptions:
    listeners: tuple[Listener, ...]
    admin_listeners: tuple[Listener, ...] | None
    """None: /admin is answered by the other listeners."""
    origins: tuple[str, ...]
    methods: str
    headers: Mapping[str, str]
    tracks_topics: bool
    resets_topics: bool
    tls: ssl.SSLContext | None = None
    """Of the encrypted listeners, if there are any."""
    users: Users | None = None
    """None: everybody may ask."""
    advertised_host: str = ""

    def make_guard(self, listeners: tuple[Listener, ...], machine: str) -> Guard:
        """`machine` is the name of this machine."""
        names = (self.advertised_host, machine, *(each.host for each in listeners))
        own = frozenset(name.lower() for name in names if name)
        return Guard(self.origins, self.methods, all(each.is_loopback for each in listeners), self.users, own)


def read_rest_options(worker: Mapping[str, str]) -> RestOptions:
    """BadConfig names the property that is wrong."""
    values = parse(REST_SETTINGS, worker)
    admin = values[ADMIN_LISTENERS]
    listeners = _read_listeners(LISTENERS, values[LISTENERS])
    admin_listeners = None if admin is None else _read_listeners(ADMIN_LISTENERS, admin)
    is_encrypted = any(each.is_encrypted for each in (*listeners, *(admin_listeners or ())))
    return RestOptions(
        listeners=listeners,
        admin_listeners=admin_listeners,
        origins=tuple(filter(None, map(str.strip, values["access.control.allow.origin"].split(",")))),
        methods=values["access.control.allow.methods"],
        headers=_read_headers(values["response.http.headers.config"]),
        tracks_topics=values["topic.tracking.enable"],
        resets_topics=values["topic.tracking.allow.reset"],
        tls=_make_context(worker) if is_encrypted else None,
        users=read_users(worker),
        advertised_host=worker.get("rest.advertised.host.name", ""),
    )


def _make_context(worker: Mapping[str, str]) -> ssl.SSLContext:
    """From `listeners.https.ssl.*`, or from `ssl.*` if there is none of them, as in Kafka Connect."""
    own = {name.removeprefix(_HTTPS): text for name, text in worker.items() if name.startswith(f"{_HTTPS}ssl.")}
    settings = own or {name: text for name, text in worker.items() if name.startswith("ssl.")}
    try:
        return make_server_context(translate_settings({**settings, "security.protocol": "ssl"}))
    except ValueError as error:
        raise BadConfig(f"{_HTTPS if own else ''}{error}") from None


def _read_listeners(name: str, texts: Any) -> tuple[Listener, ...]:
    if not texts and name == LISTENERS:
        raise BadConfig("listeners is empty: the worker could not be asked for anything")
    return tuple(_read_listener(name, text) for text in texts)


def _read_listener(name: str, text: str) -> Listener:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise BadConfig(f"{name}={text}: this is no address; write http://HOST:PORT") from None
    if url.scheme.lower() not in ("http", "https") or port is None or url.path not in ("", "/"):
        raise BadConfig(f"{name}={text}: write http://HOST:PORT or https://HOST:PORT")
    return Listener(url.hostname or "", port, url.scheme.lower() == "https")


def _read_headers(text: str) -> dict[str, str]:
    """`add`, `set` and their variants for dates differ only for headers that are there already; none of ours is."""
    headers = {}
    for part in filter(None, map(str.strip, text.split(","))):
        action, _, header = part.strip('"').partition(" ")
        name, colon, value = header.partition(":")
        if action.lower() not in ("add", "set") or not colon or not name.strip():
            raise BadConfig(f"response.http.headers.config: {part}: write `add X-Name: value`")
        headers[name.strip()] = value.strip()
    return headers
