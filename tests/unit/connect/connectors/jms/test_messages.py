"""Messages of JMS as records, and records as frames."""

from typing import Any

import pytest

from ottla.connect.connectors.jms.jms_sink import ActiveMQSink
from ottla.connect.connectors.jms.messages import FrameMaker, to_record
from ottla.connect.connectors.jms.session import Frame, adapt_artemis
from ottla.connect.data.record import Header, Record
from ottla.connect.errors import RecordError
from ottla.connect.settings.parsing import parse

HEADERS = {
    "message-id": "ID:1",
    "destination": "/queue/orders",
    "reply-to": "/temp-queue/answers",
    "timestamp": "1000",
    "expires": "0",
    "priority": "7",
    "persistent": "true",
    "redelivered": "true",
    "colour": "blue",
}


def make_maker(**more: str) -> FrameMaker:
    given = {"activemq.url": "tcp://localhost:61616", "jms.destination.name": "q"}
    return FrameMaker(
        parse(ActiveMQSink.settings, given | {name.replace("_", "."): text for name, text in more.items()})
    )


def make_record(value: Any, **more: Any) -> Record:
    return Record("t", value, partition=1, offset=2, **more)


def test_headers_and_properties() -> None:
    record = to_record("t", HEADERS, b"hello", "UTF-8")
    value = record.value
    assert (value["text"], value["messageType"], value["bytes"]) == ("hello", "text", None)
    assert (value["deliveryMode"], value["priority"], value["redelivered"], value["expiration"]) == (2, 7, True, 0)
    assert value["destination"] == {"destinationType": "queue", "name": "orders"}
    assert value["replyTo"] == {"destinationType": "queue", "name": "answers"}
    assert value["properties"] == {"colour": {"propertyType": "string", "string": "blue"}}
    assert (record.key, record.timestamp) == ({"messageID": "ID:1"}, 1000)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"map":""}', {}),
        (b'{"map":{"entry":{"string":["a","b"]}}}', {"a": {"propertyType": "string", "string": "b"}}),
        (
            b'{"map":{"entry":[{"string":"n","int":5},{"string":"b","byte-array":"AAE="},{"string":"c","char":"x"}]}}',
            {
                "n": {"propertyType": "integer", "integer": 5},
                "b": {"propertyType": "bytes", "bytes": b"\0\1"},
                "c": {"propertyType": "string", "string": "x"},
            },
        ),
    ],
)
def test_maps(body: bytes, expected: dict[str, Any]) -> None:
    """As ActiveMQ writes them: one entry is no list, and no entry is no object."""
    assert to_record("t", {**HEADERS, "transformation": "jms-map-json"}, body, "UTF-8").value["map"] == expected


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"map":{"entry":[{"string":"a","list":[]}]}}', b'{"map":{"entry":[5]}}']
)
def test_maps_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RecordError, match="the map of the message cannot be read"):
        to_record("t", {**HEADERS, "transformation": "jms-map-json"}, body, "UTF-8")


@pytest.mark.parametrize("text", ["", "plain", "ü", "😀 and \0"])
def test_texts_survive_the_utf8_of_java(text: str) -> None:
    """ActiveMQ Classic reads and writes two characters of three bytes for one of four, and no zero byte."""
    body = make_maker().make(make_record(text), True, 0).body
    assert b"\0" not in body and b"\xf0" not in body
    assert to_record("t", HEADERS, body, "UTF-8").value["text"] == text
    if "\0" not in text:
        assert make_maker().make(make_record(text), False, 0).body == text.encode()


def test_texts_that_are_no_texts() -> None:
    with pytest.raises(RecordError, match="not in UTF-8"):
        to_record("t", HEADERS, b"\xff\xfe", "UTF-8")
    assert to_record("t", HEADERS, b"\xfc", "latin-1").value["text"] == "ü"


def test_what_a_sink_adds() -> None:
    maker = make_maker(
        jms_forward_kafka_key="true",
        jms_forward_kafka_metadata="true",
        jms_forward_kafka_headers="true",
        jms_producer_time_to_live_ms="500",
        jms_producer_delivery_mode="non_persistent",
    )
    record = make_record("v", key=5, headers=[Header("colour", "red"), Header("priority", "9"), Header("none", None)])
    assert maker.make(record, True, 1000).headers == {
        "persistent": "false",
        "priority": "4",
        "expires": "1500",
        "correlation-id": "5",
        "KAFKA_TOPIC": "t",
        "KAFKA_PARTITION": "1",
        "KAFKA_OFFSET": "2",
        "colour": "red",
    }
    assert maker.make(record, False, 1000).headers["_AMQ_DUPL_ID"] == "t-1-2"


def test_formats_of_a_sink() -> None:
    assert make_maker(jms_message_format="json").make(make_record({"a": [1]}), True, 0).body == b'{"a":[1]}'
    frame = make_maker(jms_message_format="bytes").make(make_record(b"\0"), True, 0)
    assert (frame.body, frame.headers["content-length"]) == (b"\0", "1")
    maps = make_maker(jms_message_format="map")
    frame = maps.make(
        make_record({"s": "x", "n": 1, "l": 1 << 40, "b": True, "f": 0.5, "y": b"\1", "z": None}), True, 0
    )
    found = to_record("t", {**HEADERS, **frame.headers}, frame.body, "UTF-8").value["map"]
    assert {name: (each["propertyType"], each[each["propertyType"]]) for name, each in found.items()} == {
        "s": ("string", "x"),
        "n": ("integer", 1),
        "l": ("long", 1 << 40),
        "b": ("boolean", True),
        "f": ("double", 0.5),
        "y": ("bytes", b"\1"),
    }
    for maker, value, is_classic in ((maps, {"a": [1]}, True), (maps, "text", True), (maps, {}, False)):
        with pytest.raises(RecordError):
            maker.make(make_record(value), is_classic, 0)
    with pytest.raises(RecordError):
        make_maker(jms_message_format="bytes").make(make_record({"a": 1}), True, 0)


@pytest.mark.parametrize("consumer", [28, 80])
def test_messages_of_artemis(consumer: int) -> None:
    """Headers as Artemis 2.38 sends them, in their order. The id is the same whoever receives the message."""
    common = {
        "message-id": f"{consumer},12",
        "destination": "q",
        "reply-to": "queue://answers",
        "timestamp": "1794899370236",
        "destination-type": "ANYCAST",
        "__AMQ_CID": "d5270dd0",
        "colour": "blue",
        "ack": f"{consumer},12",
    }
    length = {"content-length": "2"}
    for headers, kind in (({**common, **length}, "text"), ({**length, **common}, "bytes")):
        value = to_record("t", adapt_artemis(Frame(headers, b"hi")).headers, b"hi", "UTF-8").value
        assert (value["messageID"], value["messageType"]) == ("ID:12-1794899370236", kind)
        assert value["destination"] == {"destinationType": "queue", "name": "q"}
        assert value["replyTo"] == {"destinationType": "queue", "name": "answers"}
        assert list(value["properties"]) == ["colour"]
    assert adapt_artemis(Frame({**common, **length}, b"")).headers["ack"] == f"{consumer},12"
