"""`ottla sql --follow`: the query goes on as a stream until Ctrl-C, or until there are rows enough.

Rows that never change are printed as they come. A query that sums up gives all its groups anew with every batch, and so
does the terminal.
"""

import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.output import TABLE
from ottla.cli.sql.rows import cells, show_rows_as_json, show_rows_as_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

GLANCE_S = 0.2


def follow(frame: "DataFrame", form: str, limit: int | None) -> None:
    if not frame.isStreaming:
        raise CommandError("sql: --follow: the query reads no topic", USAGE_ERROR)
    printer = Printer(frame.columns, form, limit)
    query = _started(frame, printer)
    try:
        while query.isActive and not printer.done:
            time.sleep(GLANCE_S)
        trouble = printer.trouble or query.exception()
    except KeyboardInterrupt:
        return  # the way to end
    finally:
        query.stop()
    if trouble is not None:
        raise trouble


def _started(frame: "DataFrame", printer: "Printer") -> "StreamingQuery":
    """Append if the query allows it, else complete."""
    try:
        return _writer(frame, printer, "append")
    except AnalysisException as error:
        try:
            printer.whole = True
            return _writer(frame, printer, "complete")
        except AnalysisException:
            raise error from None


def _writer(frame: "DataFrame", printer: "Printer", mode: str) -> "StreamingQuery":
    return frame.writeStream.foreachBatch(printer).outputMode(mode).start()


class Printer:
    """Called by Spark with each batch, in a thread of its own."""

    def __init__(self, columns: list[str], form: str, limit: int | None) -> None:
        self.whole = False
        """Every batch is the whole result."""
        self.done = False
        self.trouble: OSError | None = None
        self._columns = columns
        self._form = form
        self._left = limit
        self._widths: list[int] | None = None

    def __call__(self, frame: "DataFrame", _: int) -> None:
        if self.done:
            return
        rows = frame.collect() if self._left is None else frame.limit(self._left).collect()
        if not rows:
            return
        try:
            self._print(rows)
            sys.stdout.flush()
        except OSError as error:  # whoever reads has seen enough
            self.trouble, self.done = error, True
        if self._left is not None and not self.whole:
            self._left -= len(rows)
            self.done = self.done or self._left <= 0

    def _print(self, rows: list[Any]) -> None:
        if self._form != TABLE:
            show_rows_as_json(self._columns, rows)
        elif self.whole:
            print(end="\n" if self._widths is not None else "")
            self._widths = []
            show_rows_as_table(self._columns, rows)
        else:
            self._print_on(rows)

    def _print_on(self, rows: list[Any]) -> None:
        """A table that goes on: its head comes once, and columns grow as they must."""
        lines = [["-" if value is None else str(value) for value in cells(row)] for row in rows]
        if self._widths is None:
            self._widths = [len(name) for name in self._columns]
            lines.insert(0, [name.upper() for name in self._columns])
        for line in lines:
            self._widths = [max(width, len(text)) for width, text in zip(self._widths, line, strict=True)]
        for line in lines:
            cut = (text.ljust(width) for text, width in zip(line, self._widths, strict=True))
            print("  ".join(cut).rstrip())
