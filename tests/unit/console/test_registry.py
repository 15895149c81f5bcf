"""Records whose schemas are in a registry: Avro, Protobuf and JSON Schema, shown, searched and exported."""

import json
from collections.abc import Iterator
from html import unescape

import pytest
from starlette.types import ASGIApp

from ottla.console.console import Console
from tests.unit.client.shelf import Shelf, framed, served
from tests.unit.console.asgi import ask
from tests.unit.console.conftest import Starter
from tests.unit.console.seeding import make_topic, put

BIG = 9_007_199_254_740_993


def zigzag(number: int) -> bytes:
    """A long of Avro."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


AVRO = framed(2, zigzag(BIG) + b"\x06big")
JSON = framed(4, b'{"id": %d, "price": 0.10000000000000000001}' % BIG)
PROTOBUF = framed(5, b"\x00\x0a\x05\x0a\x03Ann")


@pytest.fixture(scope="module")
def topic(console: Console) -> str:
    name = make_topic(console, "schemas")
    put(
        console,
        name,
        [AVRO, JSON, PROTOBUF, framed(77, b"x"), framed(2, b"\xff"), b"plain"],
        key=framed(2, b"\x02\x00"),
    )
    return name


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def decoding(shelf: Shelf, console: Console, start: Starter) -> Iterator[ASGIApp]:
    with served(shelf) as url:
        yield start(settings=console.options.settings, registry={"schema.registry.url": url})


def test_values_are_shown_with_their_schemas(decoding: ASGIApp, topic: str, shelf: Shelf) -> None:
    page = unescape(ask(decoding, f"/topics/{topic}/records").text)
    for text in (
        f'{{"id": {BIG}, "note": "big"}}',
        f'{{"id": {BIG}, "price": 0.10000000000000000001}}',
        '{"customer": {"name": "Ann"}}',
        '{"id": 1, "note": ""}',  # the key
        "(avro, schema 2)",
        "(json, schema 4)",
        "(protobuf, schema 5)",
        "schema 77: ",  # unknown: the bytes, and why
        "schema 2: ",  # damaged
        "plain",
    ):
        assert text in page, text
    asked = list(shelf.asked)
    ask(decoding, f"/topics/{topic}/records")
    again = [path for path in shelf.asked[len(asked) :] if "/77" not in path]
    assert again == []  # a schema never changes


def test_decoded_fields_are_searched_and_exported(decoding: ASGIApp, topic: str) -> None:
    lines = ask(decoding, f"/topics/{topic}/records/export?as=jsonl&q={BIG}&in=field&field=id&start=oldest").text
    assert [json.loads(line)["offset"] for line in lines.splitlines()] == [0, 1]
    assert f'"value": {{"id": {BIG}, "note": "big"}}' in lines
    found = ask(decoding, f"/topics/{topic}/records/export?as=jsonl&q=ann&in=field&field=customer.name").text
    assert [json.loads(line)["offset"] for line in found.splitlines()] == [2]
    table = ask(decoding, f"/topics/{topic}/records/export?as=csv&start=oldest").text
    assert f'""id"": {BIG}' in table


def test_without_a_registry_the_bytes_are_shown(app: ASGIApp, topic: str) -> None:
    page = ask(app, f"/topics/{topic}/records?values=registry").text
    assert "no schema registry is set (--schema-registry)" in page
    assert AVRO.hex() in ask(app, f"/topics/{topic}/records").text


def test_a_registry_that_is_away_hides_no_record(console: Console, start: Starter, topic: str) -> None:
    app = start(settings=console.options.settings, registry={"schema.registry.url": "http://127.0.0.1:1"})
    answer = ask(app, f"/topics/{topic}/records")
    assert answer.status == 200
    assert AVRO.hex() in answer.text
    assert "plain" in answer.text
