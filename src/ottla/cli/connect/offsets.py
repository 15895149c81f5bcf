"""`ottla connect offsets CONNECTOR`: how far a connector has come."""

import argparse
import json

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.connect.asking import ask, path_of, read_file
from ottla.cli.output import JSON, show_json, show_table


def run_offsets(options: argparse.Namespace) -> int:
    path = path_of(options.name, "offsets")
    if options.reset and options.file:
        raise CommandError("--reset and --from exclude each other", USAGE_ERROR)
    if options.reset:
        print(ask(options.url, "DELETE", path)["message"])
        return 0
    if options.file:
        try:
            document = json.loads(read_file(options.file))
        except ValueError as error:
            raise CommandError(f"{options.file}: not JSON: {error}", USAGE_ERROR) from None
        print(ask(options.url, "PATCH", path, document)["message"])
        return 0
    found = ask(options.url, "GET", path)
    if options.format == JSON:
        show_json(found)
        return 0
    rows = [[_write(each["partition"]), _write(each["offset"])] for each in found["offsets"]]
    show_table(["partition", "offset"], rows)
    return 0


def _write(document: object) -> str | None:
    return None if document is None else json.dumps(document, ensure_ascii=False, separators=(",", ":"))
