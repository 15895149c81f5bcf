"""`ottla consume` and `ottla produce` with a schema registry: JSON on the screen, encoded values in topics."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from ottla.testing import LocalBroker
from tests.unit.cli.every_command import run
from tests.unit.client.shelf import V1, Shelf, framed, served

QUICK = ("-X", "enable.idempotence=false")


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker() as started:
        yield started


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def url(shelf: Shelf) -> Iterator[str]:
    with served(shelf) as address:
        yield address


def produce(broker: LocalBroker, topic: str, lines: str, *arguments: str) -> None:
    ended = run(["produce", topic, "-b", broker.bootstrap, "--create", *QUICK, *arguments], lines.encode())
    assert ended.status == 0, ended.errors


def test_avro_there_and_back(broker: LocalBroker, url: str, tmp_path: Path) -> None:
    # A schema of a file is registered. Values in the topic begin with its id; consume shows them as JSON.
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(V1))
    produce(broker, "avro", '{"id": 1}\n{"id": 2}\n', "--registry", url, "--value-schema", str(schema))
    assert run(["consume", "avro", "-b", broker.bootstrap]).output.encode() == framed(6, b"\x02\n") + framed(
        6, b"\x04\n"
    )
    shown = run(["consume", "avro", "-b", broker.bootstrap, "--registry", url])
    assert (shown.output, shown.errors) == ('{"id": 1}\n{"id": 2}\n', "")
    matching = ["--value-matches", '"id": 2', "--format", "json"]
    (line,) = run(["consume", "avro", "-b", broker.bootstrap, "--registry", url, *matching]).output.splitlines()
    assert json.loads(line)["value"] == {"id": 2}
    raw = run(["consume", "avro", "-b", broker.bootstrap, "--registry", url, "--raw", "-n", "1"])
    assert raw.output.encode() == framed(6, b"\x02\n")


def test_what_consume_prints_produce_sends(broker: LocalBroker, url: str) -> None:
    # With the newest schema of the topic, of key and value, and of Protobuf too. The registry comes from a setting.
    arguments = ("-X", f"schema.registry.url={url}", "--value-schema", "latest")
    produce(broker, "proto", '{"customer": {"name": "ann"}}\n', *arguments)
    printed = run(["consume", "proto", "-b", broker.bootstrap, "--registry", url, "--format", "json"]).output
    assert json.loads(printed)["value"] == {"customer": {"name": "ann"}}
    produce(broker, "proto", printed, *arguments, "--format", "json")
    assert run(["consume", "proto", "-b", broker.bootstrap]).output.encode() == 2 * (
        framed(5, b"\x00\x0a\x05\x0a\x03ann") + b"\n"
    )
    produce(
        broker,
        "keyed",
        '{"id": 3}|{"id": 4}\n',
        "-K",
        "|",
        "--registry",
        url,
        "--key-schema",
        "1",
        "--value-schema",
        "4",
    )
    shown = run(["consume", "keyed", "-b", broker.bootstrap, "--registry", url, "--format", "key-value"])
    assert shown.output == '{"id": 3}\t{"id": 4}\n'


def test_what_has_no_schema_is_shown_as_it_is(broker: LocalBroker, url: str) -> None:
    # Plain text, a number of eight bytes whose first is zero, and a value that is not what its schema says. Each schema
    # that does not help is named once.
    records = [b"plain", framed(77, b"abc"), framed(77, b"d"), framed(3, b"\x05")]
    for record in records:
        produce(broker, "mixed", record.decode("latin-1"), "--format", "whole")
    shown = run(["consume", "mixed", "-b", broker.bootstrap, "--registry", url])
    assert shown.output.encode() == b"\n".join([*records, b""])
    first, second = shown.errors.splitlines()
    assert "mixed-0 at offset 1: the value is shown as it is" in first and "Schema not found" in first
    assert "mixed-0 at offset 3: the value is shown as it is: not the Avro of schema 3" in second


def test_a_record_that_does_not_fit_is_refused(broker: LocalBroker, url: str) -> None:
    line = ["produce", "refused", "--create", "-b", broker.bootstrap, *QUICK, "--registry", url, "--value-schema", "1"]
    ended = run(line, b'{"id": 1}\n{"id": "x"}\n{"id": 3}\n')
    assert ended.status == 1
    assert "record 2: the value does not fit its schema: value.id: 'x' does not fit Avro's int" in ended.errors
    assert "1 record sent before it" in ended.errors


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["--value-schema", "latest"], 2, "--value-schema needs a registry: give --registry URL"),
        (
            ["--registry", "URL", "--value-schema", "order.xml"],
            2,
            "neither 'latest', an id, nor a file whose name ends",
        ),
        (["--registry", "URL", "--value-schema", "missing.avsc"], 2, "No such file or directory"),
        (["--registry", "URL", "--value-schema", "latest"], 1, "subject 'trouble-value': .*Schema not found"),
        (["--registry", "URL", "--value-schema", "99"], 1, "Schema not found"),
        (["--registry", "URL", "--value-schema", "5", "--message", "shop.Nobody"], 2, "no message 'shop.Nobody'"),
        (["--registry", "URL", "--value-schema", "1", "--message", "Order"], 2, "only Protobuf has messages"),
        (["--message", "Order"], 2, "--message is for a --value-schema of Protobuf"),
        (["--registry", "somewhere", "--value-schema", "1"], 2, "no http or https address"),
        (
            ["--registry", "http://127.0.0.1:1", "--value-schema", "1"],
            1,
            "schema registry: http://127.0.0.1:1: .*refused",
        ),
    ],
)
def test_mistakes_with_schemas_are_explained(
    broker: LocalBroker, url: str, arguments: list[str], status: int, reason: str
) -> None:
    given = [url if each == "URL" else each for each in arguments]
    ended = run(["produce", "trouble", "--create", "-b", broker.bootstrap, *given], b"")
    assert ended.status == status, ended.errors
    assert pytest.RaisesExc(ValueError, match=reason).matches(ValueError(ended.errors)), ended.errors


def test_a_registry_that_is_down_ends_the_command(broker: LocalBroker, url: str) -> None:
    produce(broker, "down", '{"id": 1}', "--registry", url, "--value-schema", "1")
    ended = run(["consume", "down", "-b", broker.bootstrap, "--registry", "http://127.0.0.1:1"])
    assert ended.status == 1
    assert ended.errors.startswith("ottla: schema registry: http://127.0.0.1:1: ")
