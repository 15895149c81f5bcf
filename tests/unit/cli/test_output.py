"""Tables and JSON for people and programs."""

import json

import pytest

from ottla.cli.output import show_json, show_table


def test_columns_are_aligned_and_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "count", "nodes"), [("a", 5, [1, 2]), ("longer", 1000, []), ("é", None, [3])])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    COUNT  NODES",
        "a           5  1,2",
        "longer   1000",
        "é           -  3",
    ]


def test_an_empty_table_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name", "count"), [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = [{"name": "é", "value": None}]
    show_json(document)
    text = capsys.readouterr().out
    assert json.loads(text) == document
    assert "é" in text
