"""Asks a page that answers with JSON over HTTP: the REST API of Kafka Connect, and the pages of a Streams app."""

import json
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

TIMEOUT_S = 20.0
"""A worker that starts Spark answers late on a busy machine."""
CHANGE_S = 60.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class NoAnswer(Exception):
    """Nobody answers there, or the answer is a refusal. The message has one line."""


class NotThere(NoAnswer):
    """The answer is that there is no such thing."""


def ask_json(
    url: str,
    method: str = "GET",
    document: object = None,
    headers: dict[str, str] | None = None,
    parse: Callable[[str], Any] = json.loads,
) -> Any:
    """The document of the answer; None if it has none. Raises NoAnswer."""
    body = None if document is None else json.dumps(document).encode()
    sent = {**(headers or {}), **({} if body is None else {"Content-Type": "application/json"})}
    if not url.startswith(("http://", "https://")):
        raise NoAnswer(f"{url} is no http or https address")
    try:
        request = Request(url, body, sent, method=method)
        with urlopen(request, timeout=TIMEOUT_S if method == "GET" else CHANGE_S) as response:
            text = response.read(ANSWER_BYTES_MAX)
    except HTTPError as error:
        with error:
            raise (NotThere if error.code == HTTPStatus.NOT_FOUND else NoAnswer)(_read_message(error)) from None
    except (URLError, OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{url} does not answer: {getattr(error, 'reason', None) or error}") from None
    try:
        return parse(text.decode()) if text else None
    except ValueError:
        raise NoAnswer(f"{url} does not answer with JSON") from None


def _read_message(error: HTTPError) -> str:
    try:
        document = json.loads(error.read(ANSWER_BYTES_MAX))
        found = document["error"] if "error" in document else document["message"]
    except (ValueError, KeyError, TypeError, OSError):
        return f"{error.url} answers with status {error.code}"
    return " ".join(str(found).split())
