"""Asks a running app for rows of its stores: `Query("http://127.0.0.1:8080", "revenue").get("shop-1", window=at)`.

Rows are dictionaries with the columns of key and value, and with `window_start` and `window_end` of a store with
windows. What is asked for comes from the state as of the last batch that is done.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import orjson
import pyarrow as pa

from ottla.streams.errors import StreamsError
from ottla.streams.state.values import RowCodec
from ottla.streams.state.views import QueryError, Time, read_time

TIMEOUT_S: Final = 30.0
_NOT_FOUND: Final = 404


class QueryFailed(StreamsError):
    """An app did not answer, or not with rows."""


class Query:
    """Reads one store of an app."""

    def __init__(self, app: Any, name: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """`app` is an App that runs, or the address of its HTTP server. `token` is needed if the app has one."""
        self._address = (app if isinstance(app, str) else app.http_address).rstrip("/")
        self._name = name
        self._token = token
        self._timeout_s = timeout_s
        self._described: tuple[list[str], RowCodec] | None = None

    def get(self, *key: Any, window: Time | None = None) -> dict[str, Any] | None:
        """The row of a key, given by the values of its columns; of a store with windows, that of the window which
        begins at the given time. None if there is none."""
        given = {} if window is None else {"window": str(read_time(window))}
        answer = self._ask(self._path_of(key), given, may_be_missing=True)
        return None if answer is None else self._decode(answer)

    def window(self, *key: Any, start: Time | None = None, end: Time | None = None) -> list[dict[str, Any]]:
        """The windows of a key that begin between two times, both included."""
        answer = self._ask(self._path_of(key), _times(start, end))
        assert answer is not None
        if "rows" not in answer:
            raise QueryError(f"store {self._name!r} has no windows")
        return [self._decode(row) for row in answer["rows"]]

    def range(self, start: Any = None, end: Any = None) -> Iterator[dict[str, Any]]:
        """Rows with keys from `start` to `end`, both included, in the order of keys, page by page."""
        given = {name: self._to_text(value) for name, value in (("from", start), ("to", end)) if value is not None}
        return self._pages(given)

    def all(self, *, start: Time | None = None, end: Time | None = None) -> Iterator[dict[str, Any]]:
        """All rows, page by page; of a store with windows, those that begin between two times."""
        return self._pages(_times(start, end))

    def _pages(self, given: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        after: dict[str, str] = {}
        while True:
            answer = self._ask(self._path_of(()), {**given, **after})
            assert answer is not None
            yield from map(self._decode, answer["rows"])
            if answer["next"] is None:
                return
            after = {"after": answer["next"]}

    def _path_of(self, key: tuple[Any, ...]) -> str:
        return "/".join(["/stores", quote(self._name, safe=""), *(quote(self._to_text(each), safe="") for each in key)])

    def _to_text(self, value: Any) -> str:
        """A value of a key as it is written in an address."""
        if isinstance(value, str):
            return value
        names, codec = self._describe()
        fields = [codec.columns.field(name) for name in names]
        for field in fields:
            try:
                found = orjson.loads(RowCodec(pa.schema([field])).encode_row({field.name: value}))[field.name]
            except ValueError:
                continue
            return found if isinstance(found, str) else orjson.dumps(found).decode()
        raise QueryError(f"{value!r:.60} is not a value of the key of store {self._name!r}")

    def _decode(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return self._describe()[1].decode_row(orjson.dumps(row))

    def _describe(self) -> tuple[list[str], RowCodec]:
        """The names of the key's columns, and the codec of rows."""
        if self._described is None:
            answer = self._ask("/stores", {})
            assert answer is not None
            found = {store["name"]: store for store in answer["stores"]}
            if self._name not in found:
                raise QueryError(f"there is no store {self._name!r}; there are: {', '.join(found) or 'none'}")
            store = found[self._name]
            schema = pa.ipc.read_schema(pa.py_buffer(b64decode(store["schema"])))
            self._described = store["key"], RowCodec(schema)
        return self._described

    def _ask(self, path: str, given: Mapping[str, str], *, may_be_missing: bool = False) -> dict[str, Any] | None:
        address = f"{self._address}{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            with urlopen(Request(address, headers=headers), timeout=self._timeout_s) as response:
                found: dict[str, Any] = orjson.loads(response.read())
                return found
        except HTTPError as error:
            with error:
                message = _read_error(error.read())
            if error.code == _NOT_FOUND and may_be_missing and "no such key" in message:
                return None
            kind = QueryError if error.code < 500 else QueryFailed
            raise kind(f"{self._address}: {message or error.reason}") from None
        except (URLError, OSError, HTTPException, orjson.JSONDecodeError) as error:
            reason = getattr(error, "reason", error)
            raise QueryFailed(f"{self._address} does not answer: {reason}. Is the app running?") from None


def _times(start: Time | None, end: Time | None) -> dict[str, str]:
    return {name: str(read_time(time)) for name, time in (("from", start), ("to", end)) if time is not None}


def _read_error(body: bytes) -> str:
    try:
        return str(orjson.loads(body)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
