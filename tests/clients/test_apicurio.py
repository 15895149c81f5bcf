"""Records with schemas in Apicurio Registry: the command line writes them; it, the console and Arrow columns read them.

Apicurio has the API of Confluent's registry, and gives Protobuf schemas as the source of .proto files.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer

from ottla.console.app import make_app
from ottla.console.console import Console, Options
from ottla.console.guarding import LOOPBACK_NAMES
from ottla.testing import LocalBroker, broker
from tests.apicurio import run_apicurio
from tests.patience import PATIENCE_MS, PATIENCE_S
from tests.unit.client.shelf import framed
from tests.unit.console.asgi import ask
from tests.unit.console.conftest import now_ms, patient

PATIENT = "schema.registry.request.timeout.ms"
BIG = 9_007_199_254_740_993
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  map<string, Line> lines = 3;
  google.protobuf.Timestamp at = 4;
  State state = 5;
  message Line { uint32 pieces = 1; }
}
enum State { NEW = 0; PAID = 1; }
message Refund { string reason = 1; }
"""
ORDER = {"id": BIG, "note": "é"}


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with run_apicurio() as address:
        yield address


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


def run(local: LocalBroker, *words: str, given: str = "") -> str:
    command = [sys.executable, "-m", "ottla", *words, "-b", local.bootstrap, "-X", f"{PATIENT}={PATIENCE_MS}"]
    ended = subprocess.run(command, input=given, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def read_with_console(local: LocalBroker, registry: str, topic: str) -> str:
    options = Options(patient(local.bootstrap), registry={"schema.registry.url": registry, PATIENT: str(PATIENCE_MS)})
    console = Console(options, now_ms, time.monotonic)
    try:
        return unescape(ask(make_app(console, LOOPBACK_NAMES, None), f"/topics/{topic}/records").text)
    finally:
        console.close()


def post(url: str, document: object) -> Any:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with urlopen(Request(url, json.dumps(document).encode(), headers), timeout=PATIENCE_S) as answer:
        return json.load(answer)


@pytest.mark.long
@pytest.mark.parametrize(
    ("suffix", "schema", "document"),
    [
        ("avsc", json.dumps(AVRO), ORDER),
        ("json", json.dumps(JSON_SCHEMA), ORDER),
        ("proto", PROTO, {**ORDER, "lines": {"x": {"pieces": 4}}, "at": "2026-01-31T18:00:00Z", "state": "PAID"}),
    ],
)
def test_what_is_written_with_a_schema_is_read_with_it(
    local: LocalBroker, registry: str, tmp_path: Path, suffix: str, schema: str, document: dict[str, Any]
) -> None:
    file, topic = tmp_path / f"order.{suffix}", f"orders-{suffix}"
    file.write_text(schema)
    words = ("produce", topic, "--create", "--registry", registry, "--value-schema")
    run(local, *words, str(file), given=json.dumps(document) + "\n")
    run(local, *words[:2], *words[3:], "latest", given=json.dumps(document) + "\n")
    lines = run(local, "consume", topic, "--registry", registry).splitlines()
    expected = {**document, "id": str(BIG)} if suffix == "proto" else document  # as Protobuf's JSON has 64-bit numbers
    assert [json.loads(line) for line in lines] == [expected, expected]
    page = read_with_console(local, registry, topic)
    kind = {"avsc": "avro", "json": "json", "proto": "protobuf"}[suffix]
    assert page.count(f"({kind}, schema ") == 2
    assert str(BIG) in page


@pytest.mark.long
def test_messages_of_files_that_import_others(local: LocalBroker, registry: str) -> None:
    customer = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
    order = (
        'syntax = "proto3"; package shop; import "customer.proto"; message Other { int32 a = 1; }'
        " message Order { message Line { Customer customer = 1; } }"
    )
    post(f"{registry}/subjects/customer/versions", {"schemaType": "PROTOBUF", "schema": customer})
    references = [{"name": "customer.proto", "subject": "customer", "version": 1}]
    asked = {"schemaType": "PROTOBUF", "schema": order, "references": references}
    number = post(f"{registry}/subjects/nested-value/versions", asked)["id"]
    producer = Producer({"bootstrap.servers": local.bootstrap})
    local.create_topic("nested")
    producer.produce("nested", framed(number, b"\x04\x02\x00\x0a\x05\x0a\x03Ann"))  # message 1, and in it message 0
    producer.flush()
    assert json.loads(run(local, "consume", "nested", "--registry", registry)) == {"customer": {"name": "Ann"}}
    assert '{"customer": {"name": "Ann"}}' in read_with_console(local, registry, "nested")
