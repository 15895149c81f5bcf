"""Asks the REST API of a worker."""

import base64
import json
import sys
from collections.abc import Iterable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.pairs import parse_pairs
from ottla.cli.suggestions import suggest

NOT_FOUND = 404
TIMEOUT_S = 100.0
"""Longer than the worker takes before it says that it has not finished."""


def ask(url: str, method: str, path: str, document: object = None) -> Any:
    """The document of the answer, None if it has none. CommandError has the worker's message if it refuses."""
    base, login = _split_login(url if "://" in url else f"http://{url}")
    if urlsplit(base).scheme not in ("http", "https") or not urlsplit(base).hostname:
        raise CommandError(f"--url {base}: write http://HOST:PORT", USAGE_ERROR)
    body = None if document is None else json.dumps(document).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        with urlopen(Request(base.rstrip("/") + path, body, headers, method=method), timeout=TIMEOUT_S) as response:
            text = response.read()
    except HTTPError as error:
        with error:
            message = _read_message(error)
        raise CommandError(message + (_suggest_connector(url, path) if error.code == NOT_FOUND else "")) from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        text = getattr(reason, "strerror", None) or reason
        raise CommandError(f"cannot reach {base}: {text}. Does a worker run there? (ottla connect up)") from None
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise CommandError(f"{base} does not answer as a worker of Connect does") from None


def _suggest_connector(url: str, path: str) -> str:
    """The nearest connector that exists, for a path with a name that does not."""
    _, root, name, *_ = [unquote(part) for part in path.partition("?")[0].split("/")] + ["", ""]
    if root != "connectors" or not name:
        return ""
    try:
        return suggest(name, ask(url, "GET", "/connectors"))
    except CommandError:
        return ""


def _split_login(url: str) -> tuple[str, str]:
    """A URL without the user and the password that it has, and these."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    login, _, host = place.rpartition("@")
    return f"{scheme}://{host}{slash}{path}", unquote(login)


def _read_message(error: HTTPError) -> str:
    try:
        message: str = json.loads(error.read())["message"]
    except (ValueError, KeyError, TypeError):
        return f"{error.url} answers with status {error.code}"
    lines = [line for line in message.splitlines() if not line.startswith("You can also find the above list")]
    return "; ".join(lines) if len(lines) < 2 else f"{lines[0]} {'; '.join(lines[1:])}"


def path_of(name: str, *more: str) -> str:
    return "/".join(("/connectors", quote(name, safe=""), *more))


def read_configuration(file: str | None, settings: Iterable[str]) -> tuple[str, dict[str, str], str | None]:
    """Name, settings and state of a connector, from a file (JSON or properties) and --set."""
    from ottla.connect.errors import BadConfig
    from ottla.connect.worker.standalone import read_connector_file

    given = parse_pairs(settings, "--set")
    if file is None:
        if "name" not in given:
            raise CommandError("name a file, or settings with --set; one of them is name", USAGE_ERROR)
        return given["name"], given, None
    text = read_file(file)
    try:
        found = read_connector_file(text, file)
    except BadConfig as error:
        raise CommandError(str(error), USAGE_ERROR) from None
    config = {**found.config, **given}
    state = found.initial_state.value
    return config["name"], config, None if state == "STARTED" else state


def read_file(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 text: byte {error.object[error.start]:#04x}", USAGE_ERROR) from None
