"""Asks the pages of a running app."""

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ottla.cli.command_error import CommandError

TIMEOUT_S = 5.0
TOKEN_VARIABLE = "OTTLA_STREAM_TOKEN"
_UNAUTHORIZED = 401


class AppGone(CommandError):
    """Nobody answers at the address of an app."""


def ask_page(address: str, path: str, method: str = "GET") -> dict[str, Any]:
    """The JSON document of a page, also if the page says that the app is not healthy."""
    headers = {"Authorization": f"Bearer {token}"} if (token := find_token()) else {}
    request = Request(f"{address}{path}", method=method, headers=headers)
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:
            body = response.read()
    except HTTPError as error:
        with error:
            body = error.read()
        if error.code == _UNAUTHORIZED:
            raise CommandError(f"{address} needs the app's token in the variable {TOKEN_VARIABLE}") from None
    except (URLError, OSError, HTTPException) as error:
        raise AppGone(f"{address} does not answer: {getattr(error, 'reason', error)}") from None
    try:
        found: dict[str, Any] = json.loads(body)
    except ValueError:
        raise AppGone(f"{address} does not answer as an app does") from None
    return found


def find_token() -> str | None:
    return os.environ.get(TOKEN_VARIABLE)
