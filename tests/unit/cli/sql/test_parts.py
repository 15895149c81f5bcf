"""The parts of `ottla sql` that need no Spark: rows for people and programs, errors in one line, options."""

import argparse
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row

from ottla.cli import command_parser, main
from ottla.cli.command_error import CommandError
from ottla.cli.sql import _read_settings
from ottla.cli.sql.complaints import explain_spark_errors, find_reason
from ottla.cli.sql.following import Printer
from ottla.cli.sql.rows import show_rows_as_json, show_rows_as_table
from ottla.client.client import UnknownTopic

ROW = (
    1,
    "two\nlines",
    None,
    True,
    1.5,
    float("nan"),
    Decimal("1.10"),
    datetime(2024, 5, 1, 10, 0, 0, 120_000),
    date(2024, 5, 1),
    bytearray(b"text"),
    b"\xff",
    Row(a=1, b=[Row(c=date(2024, 5, 1))]),
    {1: b"x"},
)


def test_rows_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers are right-aligned, each row is one line, and nested values are JSON."""
    show_rows_as_table(["n", "t", "none", "b", "x", "nan", "d", "at", "day", "k", "raw", "s", "m"], [ROW])
    assert capsys.readouterr().out.splitlines() == [
        "N  T           NONE  B       X  NAN  D     AT                       DAY         K     RAW"
        "                 S                                     M",
        '1  two\\nlines     -  true  1.5  nan  1.10  2024-05-01 10:00:00.120  2024-05-01  text  {"base64": "/w=="}'
        '  {"a": 1, "b": [{"c": "2024-05-01"}]}  {"1": "x"}',
    ]


def test_rows_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows_as_json(["n", "t", "none"], iter([ROW[:3], (2, "é", None)]))
    assert capsys.readouterr().out == '{"n": 1, "t": "two\\nlines", "none": null}\n{"n": 2, "t": "é", "none": null}\n'


class Batch:
    """A stand-in for the data frame that Spark passes to a printer."""

    def __init__(self, *rows: tuple[Any, ...]) -> None:
        self._rows = list(rows)

    def limit(self, count: int) -> "Batch":
        return Batch(*self._rows[:count])

    def collect(self) -> list[tuple[Any, ...]]:
        return self._rows


def test_rows_of_several_batches_are_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    """There is one header line, columns only grow, and printing ends when there are enough rows."""
    printer: Any = Printer(["word", "n"], "table", 3)
    for batch in (Batch(("a", 1)), Batch(), Batch(("longer", None)), Batch(("b", 3), ("not", 4)), Batch(("shown", 5))):
        printer(batch, 0)
    assert printer.done
    assert capsys.readouterr().out == "WORD  N\na     1\nlonger  -\nb       3\n"


def test_a_complete_result_is_printed_with_every_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit counts rows, not batches."""
    printer: Any = Printer(["n"], "table", 1)
    printer.whole = True
    for number in (1, 2):
        printer(Batch((number,), (9,)), number)
    assert not printer.done
    assert capsys.readouterr().out == "N\n1\n\nN\n2\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'selec'. SQLSTATE: 42601 (line 1, pos 0)\n\n"
            "== SQL ==\nselec",
            "Syntax error at or near 'selec'",
        ),
        ("[UNSUPPORTED] Sorting is not supported;\n'Sort", "Sorting is not supported"),
        (
            "Job aborted: Traceback (most recent call last):\n  File 'x', line 1, in f\n    raise BadRecord('no: x')\n"
            "ottla.pipeline.formats.BadRecord: t-0 at offset 1: value: poison\n\n\tat org.apache.Java",
            "t-0 at offset 1: value: poison",
        ),
        ("", "no reason is given"),
    ],
)
def test_an_error_of_spark_is_one_line(text: str, said: str) -> None:
    assert find_reason(text) == said


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (UnknownTopic("there is no topic 'x'"), "sql: there is no topic 'x'", 1),
        (AnalysisException("[A_B] wrong"), "sql: wrong", 2),
        (PySparkException("[A_B] broken"), "sql: broken", 1),
    ],
)
def test_an_error_of_spark_becomes_a_usage_error(error: Exception, said: str, status: int) -> None:
    with pytest.raises(CommandError) as refused, explain_spark_errors():
        raise error
    assert (str(refused.value), refused.value.status) == (said, status)


def settings(*arguments: str) -> dict[str, str]:
    options: argparse.Namespace = command_parser({"sql"}).parse_args(["sql", "select 1", *arguments])
    return _read_settings(options, int(datetime(2024, 5, 1, tzinfo=UTC).timestamp() * 1000))


def test_arguments_become_options_of_the_source() -> None:
    assert settings() == {"keyFormat": "string", "valueFormat": "string"}
    assert settings("--value-format", "json")["valueSchema"] == "infer"
    assert "valueSchema" not in settings("--value-format", "json", "--registry", "http://r")
    assert settings("--value-format", "avro", "--value-schema", "@x")["valueSchema"] == "@x"
    assert settings("-X", "client.id=me", "-o", "valueFormat=binary") == {
        "kafka.client.id": "me",
        "keyFormat": "string",
        "valueFormat": "binary",
    }
    assert settings("--since", "1s")["startingTimestamp"] == "1714521599000"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sql", ""], "the query is empty"),
        (["sql", "select 1", "-n", "-1"], "--limit: -1 is not between"),
        (["sql", "select 1", "-o", "x"], "--option: 'x' is not key=value"),
        (["sql", "select 1", "--since", "soon"], "'soon' is not a time"),
        (["sql", "select 1", "--value-format", "xml"], "xml"),
    ],
)
def test_wrong_usage_is_reported_before_spark_starts(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as left:
        status = int(left.code or 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert status == 2
    assert said in line


def test_without_pyspark_the_message_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.sql.find_spec", lambda name: None)
    assert main(["sql", "select 1"]) == 1
    assert capsys.readouterr().err == "ottla: sql: PySpark is not installed: pip install 'ottla[spark]'\n"
