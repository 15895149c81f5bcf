"""`ottla log dump|verify`: reads the files of a broker, without a broker.

`dump` shows the content of segments, indexes, snapshots and checkpoints, and only reads. For a directory it shows all
files that a broker writes there and in its partitions. `verify` reads everything, compares derived files with the
records, and prints only problems; `--repair` repairs what can be repaired. A notice is something that may or may not be
damage. Both end with status 1 if anything is damaged.
"""

import argparse
import base64
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.command_error import FAILURE, CommandError
from ottla.cli.output import JSON, add_format_argument, counted, show_json
from ottla.observability import logs

if TYPE_CHECKING:
    from ottla.cli.log_files import Entry

TEXT = "text"
BYTES_SHOWN_MAX = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    dump = actions.add_parser("dump", help="show what is in files", description="Show what is in a broker's files.")
    dump.add_argument("paths", nargs="+", metavar="PATH", help="a data directory, a partition's directory or a file")
    dump.add_argument("--records", action="store_true", help="also the records of each batch")
    dump.add_argument("--format", choices=(TEXT, JSON), default=TEXT, help="a line for each entry (default: text)")
    purpose = "check every checksum, index and snapshot"
    about = "Check every checksum, index and snapshot of a data directory that no broker uses."
    verify = actions.add_parser("verify", help=purpose, description=about)
    verify.add_argument("paths", nargs="+", metavar="DIR", help="a data directory or a partition's directory")
    verify.add_argument(
        "--repair",
        action="store_true",
        help="make derived files anew and cut torn ends off; sound records are never touched",
    )
    add_format_argument(verify)


def run(options: argparse.Namespace) -> int:
    return _verify(options) if options.action == "verify" else _dump(options)


def _verify(options: argparse.Namespace) -> int:
    from ottla.cli.log_progress import WatchedDisk, measure_segments
    from ottla.cli.log_verification import Report, verify_path
    from ottla.cli.progress import ProgressLine
    from ottla.storage.verification import Problem

    logs.configure(sys.stderr, "error")  # this command reports repairs itself, so recovery logs only errors
    report = Report()
    as_text = options.format != JSON
    with ProgressLine("verify", measure_segments(options.paths)) as progress:

        def show_problem(problem: Problem) -> None:
            progress.clear()
            if as_text:
                print(f"{problem.path}: {problem.reason}")

        disk = WatchedDisk(progress)
        for path in options.paths:
            verify_path(disk, path.rstrip("/") or "/", report, mend=options.repair, on_problem=show_problem)
    sums = {
        name: sum(getattr(partition, name) for partition in report.partitions)
        for name in ("segments", "batches", "records", "bytes")
    }
    if as_text:
        for problem in report.repaired:
            print(f"{problem.path}: {problem.reason} (repaired)")
        for notice in report.notices:
            print(f"{notice.path}: {notice.reason} (notice)")
        print(
            f"{counted(len(report.partitions), 'partition')}, {counted(sums['segments'], 'segment')}, "
            f"{counted(sums['records'], 'record')}, {sums['bytes'] / 1e6:.1f} MB: "
            + (counted(len(report.problems), "problem") if report.problems else "no damage")
            + (f", {len(report.repaired)} repaired" if report.repaired else "")
            + (f", {counted(len(report.notices), 'notice')}" if report.notices else "")
        )
    else:
        listed = {
            name: [finding._asdict() for finding in getattr(report, name)]
            for name in ("problems", "notices", "repaired")
        }
        show_json({"partitions": len(report.partitions), **sums, **listed})
    return FAILURE if report.problems else 0


def _dump(options: argparse.Namespace) -> int:
    from ottla.cli.log_files import DAMAGE, entries, reader_of
    from ottla.storage.files import RealDisk

    disk = RealDisk()
    damaged = 0
    for path in options.paths:
        for file in _files(path):
            reader = reader_of(file)
            if reader is None:
                raise CommandError(f"{file}: no broker writes a file of this name")
            if options.format == TEXT:
                print(file)
            for entry in entries(disk, file, reader, with_records=options.records):
                damaged += entry["kind"] == DAMAGE
                print(_text(entry) if options.format == TEXT else _json(file, entry))
    if damaged:
        sys.stdout.flush()
        print(f"ottla: {counted(damaged, 'damaged file')}", file=sys.stderr)
    return FAILURE if damaged else 0


def _files(path: str) -> Iterator[str]:
    """The path itself, or what a broker has written into the directory of that name and its partitions."""
    from ottla.cli.log_files import reader_of
    from ottla.storage.directories import parse_name

    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
        found = sorted(os.listdir(path)) if is_directory else []
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    if not is_directory:
        yield path
    for name in found:
        inner = os.path.join(path, name)
        if os.path.isdir(inner):
            if parse_name(name) is not None:
                yield from _files(inner)
        elif reader_of(inner) is not None:
            yield inner


def _json(file: str, entry: "Entry") -> str:
    return json.dumps({"file": file, **entry}, default=_json_bytes, ensure_ascii=False)


def _json_bytes(value: object) -> object:
    """Converts bytes for JSON as `ottla consume --format json` does: to text, or to base64 if they are not UTF-8."""
    assert isinstance(value, bytes)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _text(entry: "Entry") -> str:
    fields = " ".join(f"{name}={_field(value)}" for name, value in entry.items() if name != "kind")
    indent = "    " if entry["kind"] == "record" else "  "
    return f"{indent}{entry['kind']} {fields}"


def _field(value: object) -> str:
    if isinstance(value, bytes):
        shown = value[:BYTES_SHOWN_MAX]
        rest = f"... ({len(value)} bytes)" if len(value) > BYTES_SHOWN_MAX else ""
        try:
            return json.dumps(shown.decode(), ensure_ascii=False) + rest
        except UnicodeDecodeError:
            return repr(shown) + rest
    if isinstance(value, tuple):
        return "[" + ",".join(f"{name}={_field(data)}" for name, data in value) + "]"
    return "null" if value is None else str(value)
