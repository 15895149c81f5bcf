"""`ottla stream query APP STORE [KEY...]`: rows of a running app's store."""

import argparse
from itertools import islice
from typing import Any

from ottla.cli.client import open_own_client
from ottla.cli.command_error import CommandError
from ottla.cli.output import JSON, show_json, show_table
from ottla.cli.stream.apps import find_app
from ottla.cli.stream.pages import find_token


def run_query(options: argparse.Namespace) -> int:
    from ottla.streams.errors import StreamsError
    from ottla.streams.queries import Query

    with open_own_client(options) as client:
        app = find_app(client, options.name)
    query = Query(app.address, options.store, token=find_token())
    try:
        rows = _read(query, options)
    except StreamsError as error:
        raise CommandError(str(error)) from None
    texts = [{name: _to_text(value) for name, value in row.items()} for row in rows]
    if options.format == JSON:
        show_json(texts)
    elif texts:
        show_table(list(texts[0]), [list(row.values()) for row in texts])
    return 0


def _read(query: Any, options: argparse.Namespace) -> list[dict[str, Any]]:
    if not options.key:
        return list(islice(query.all(), options.limit))
    if options.window is not None:
        row = query.get(*options.key, window=_to_time(options.window))
    else:
        row = query.get(*options.key)
    if row is None:
        raise CommandError(f"store {options.store!r} has no key {' '.join(options.key)!r}")
    return [row]


def _to_time(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _to_text(value: object) -> object:
    """A value that JSON and tables can show."""
    return value if isinstance(value, str | int | float | bool | None) else str(value)
