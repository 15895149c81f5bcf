"""`ottla sql --follow`: runs a query as a stream until Ctrl-C or until --limit rows were printed.

If the rows of the result never change, each is printed when it arrives. The result of an aggregation changes with every
batch, so it is printed as a whole each time.
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
    """Prints the rows of a streaming query in the output format `form`. Returns after Ctrl-C or `limit` rows."""
    if not frame.isStreaming:
        raise CommandError("sql: --follow: the query reads no topic", USAGE_ERROR)
    printer = Printer(frame.columns, form, limit)
    query = _start(frame, printer)
    try:
        while query.isActive and not printer.done:
            time.sleep(GLANCE_S)
        trouble = printer.trouble or query.exception()
    except KeyboardInterrupt:
        return  # Ctrl-C is the normal way to end
    finally:
        query.stop()
    if trouble is not None:
        raise trouble


def _start(frame: "DataFrame", printer: "Printer") -> "StreamingQuery":
    """Starts the query in append mode if Spark allows it for this query, otherwise in complete mode."""
    try:
        return _start_in_mode(frame, printer, "append")
    except AnalysisException as error:
        try:
            printer.whole = True
            return _start_in_mode(frame, printer, "complete")
        except AnalysisException:
            raise error from None


def _start_in_mode(frame: "DataFrame", printer: "Printer", mode: str) -> "StreamingQuery":
    return frame.writeStream.foreachBatch(printer).outputMode(mode).start()


class Printer:
    """Prints batches. Spark calls it with each batch, in its own thread."""

    def __init__(self, columns: list[str], form: str, limit: int | None) -> None:
        self.whole = False
        """Whether every batch is the whole result."""
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
        except OSError as error:  # the reader of standard output has closed it
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
            self._append_to_table(rows)

    def _append_to_table(self, rows: list[Any]) -> None:
        """Prints the rows below those before. The heading is printed once; columns become wider when they need to."""
        lines = [["-" if value is None else str(value) for value in cells(row)] for row in rows]
        if self._widths is None:
            self._widths = [len(name) for name in self._columns]
            lines.insert(0, [name.upper() for name in self._columns])
        for line in lines:
            self._widths = [max(width, len(text)) for width, text in zip(self._widths, line, strict=True)]
        for line in lines:
            cut = (text.ljust(width) for text, width in zip(line, self._widths, strict=True))
            print("  ".join(cut).rstrip())
