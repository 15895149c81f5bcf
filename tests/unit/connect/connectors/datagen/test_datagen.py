"""Made-up records: what schemas ask for, and that they are the same ones again."""

import json
import re
from random import Random
from typing import Any

import pytest

from ottla.connect.connector import ConnectorContext, Part
from ottla.connect.connectors.datagen.datagen_source import BATCH_ROWS, DatagenSource
from ottla.connect.connectors.datagen.generating import Generator
from ottla.connect.connectors.datagen.patterns import compile_generator
from ottla.connect.connectors.datagen.quickstarts import QUICKSTARTS
from ottla.connect.converters.choice import make_converter
from ottla.connect.data.record import Record
from ottla.connect.errors import BadConfig, ConnectError
from ottla.connect.settings.parsing import parse


def make_source(tasks: int = 1, **more: str) -> DatagenSource:
    given = {"kafka.topic": "t"} | {name.replace("_", "."): text for name, text in more.items()}
    return DatagenSource(parse(DatagenSource.settings, given), ConnectorContext("unit", "workers", tasks, {}))


def read(source: DatagenSource, start: int, count: int, task: int = 0) -> list[Record]:
    [batch] = source.read(Part({"task": task}, {"count": count}), {"position": start})
    assert batch.offset == {"position": start + count}
    [rows] = batch.rows
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_quickstarts(name: str) -> None:
    """Their values are of their schemas, which a converter checks, and do not depend on how they are cut."""
    source = make_source(quickstart=name)
    rows = read(source, 0, 100)
    converter = make_converter("json", {"schemas.enable": "true"}, False)
    for each in rows:
        assert json.loads(converter.to_bytes("t", (), each.value_schema, each.value) or b"")["payload"]
        assert each.key == each.value[QUICKSTARTS[name][1]]
    assert read(source, 40, 60) == rows[40:]
    assert read(source, 0, 100, task=1) != rows
    assert len({json.dumps(each.value, default=str) for each in rows}) > 10


def test_seeds() -> None:
    first = read(make_source(quickstart="users", random_seed="1"), 0, 10)
    assert read(make_source(quickstart="users", random_seed="1"), 0, 10) == first
    assert read(make_source(quickstart="users", random_seed="2"), 0, 10) != first


def make_value(kind: Any, position: int = 0, **properties: Any) -> Any:
    avro = {**(kind if isinstance(kind, dict) else {"type": kind}), "arg.properties": properties}
    schema = {"type": "record", "name": "r", "fields": [{"name": "f", "type": avro}]}
    return Generator(json.dumps(schema)).make(Random(5), position)["f"]


def test_arguments() -> None:
    assert make_value("string", options=["a"]) == "a"
    assert [make_value("int", at, iteration={"start": 5, "step": 3}) for at in range(3)] == [5, 8, 11]
    assert [make_value("long", at, iteration={"start": 1, "restart": 3}) for at in range(4)] == [1, 2, 1, 2]
    assert [make_value("int", at, iteration={"start": 0, "restart": 4, "initial": 3}) for at in range(3)] == [3, 0, 1]
    assert [make_value("int", at, iteration={"start": 9, "restart": 7, "step": -1}) for at in range(3)] == [9, 8, 9]
    assert 3 <= make_value("int", range={"min": 3, "max": 5}) < 5
    assert make_value("string", range={"min": 3, "max": 4}, prefix="<", suffix=">") == "<3>"
    assert len(make_value("string", length=4)) == 4
    assert len(make_value("bytes", length={"min": 2, "max": 3})) == 2
    assert make_value("boolean", odds=1.0) is True
    assert len(make_value({"type": "array", "items": "int"}, length=3)) == 3
    assert len(make_value({"type": "map", "values": "int"}, length=2)) == 2
    assert make_value({"type": "enum", "name": "e", "symbols": ["X"]}) == "X"


@pytest.mark.parametrize(
    "pattern", ["", "a|bc", "[a-c]{2,4}x?", r"\d+\.(?:[^]|x)".replace("[^]", "y"), r"[\w-]*\\", "(a(b|c)){3}"]
)
def test_patterns(pattern: str) -> None:
    make = compile_generator(pattern)
    for seed in range(50):
        assert re.fullmatch(pattern, make(Random(seed)))


@pytest.mark.parametrize("pattern", ["(", ")", "[", "a{", "a{x}", "a{101}", "[^a]", r"\b", "*", "^a", "[]"])
def test_patterns_that_are_not_supported(pattern: str) -> None:
    with pytest.raises(ValueError, match="the pattern"):
        compile_generator(pattern)


def test_how_many() -> None:
    source = make_source(2, quickstart="users", max_interval="0", iterations="25000")
    assert [each.work["count"] for each in source.plan({})] == [BATCH_ROWS, BATCH_ROWS]
    offsets = {'{"task": 0}': {"position": 20000}, '{"task": 1}': {"position": 25000}}
    [part] = source.plan(offsets)
    assert (part.partition, part.work) == ({"task": 0}, {"count": 5000})
    assert not source.is_done()
    assert source.plan({'{"task": 0}': {"position": 25000}, '{"task": 1}': {"position": 25000}}) == []
    assert source.is_done()


def test_how_often() -> None:
    """The first record comes at once, the next one not before its time."""
    source = make_source(quickstart="users", max_interval="100000000")
    assert [each.work["count"] for each in source.plan({})] == [1]
    assert source.plan({}) == []


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, "schema.string"),
        ({"quickstart": "users", "schema.string": "{}"}, "schema.string"),
        ({"quickstart": "unicorns"}, "quickstart"),
        ({"schema.string": "{"}, "schema.string"),
        ({"schema.string": '{"type": "record"}'}, "schema.string"),
        ({"schema.filename": "/x"}, "schema.filename"),
        ({"quickstart": "users", "schema.keyfield": "colour"}, "schema.keyfield"),
        (
            {"schema.string": '{"type": "record", "name": "r", "fields": [{"name": "f", "type": {"type": "int",'
             ' "arg.properties": {"distribution": 1}}}]}'},
            "schema.string",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_obeyed_is_named(more: dict[str, str], name: str) -> None:
    with pytest.raises(BadConfig, match=f"^{name}: "):
        parse(DatagenSource.settings, {"kafka.topic": "t", **more})


def test_offsets_that_are_none() -> None:
    source = make_source(quickstart="users")
    source.check_offset({"task": 0}, {"position": 5})
    for partition, offset in (({"task": "0"}, None), ({"task": 0}, {"position": -1})):
        with pytest.raises(ConnectError):
            source.check_offset(partition, offset)
