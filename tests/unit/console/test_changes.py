"""What the console changes: topics, settings, records, groups."""

import re
from html import unescape

import pytest
from starlette.types import ASGIApp

from ottla.client.client import EARLIEST, LATEST
from ottla.client.groups import fetch_offsets
from ottla.console.console import Console
from ottla.console.facts.records import FoundRecord, read_range
from ottla.topic_partition import TopicPartition
from tests.unit.console.asgi import Answer, ask
from tests.unit.console.seeding import commit, make_topic, put


def read_all(console: Console, topic: str, partition: int = 0) -> list[FoundRecord]:
    where = TopicPartition(topic, partition)
    with console.clients.borrow() as client:
        first = client.list_offsets({where: EARLIEST})[where].offset
        end = client.list_offsets({where: LATEST})[where].offset
        return list(read_range(client, where, first, end))


def committed(console: Console, group: str) -> dict[TopicPartition, int]:
    with console.clients.borrow() as client:
        return {where: each.offset for where, each in fetch_offsets(client, group).items()}


def note_of(app: ASGIApp, answer: Answer) -> str:
    """What the page after a change says."""
    assert answer.status == 303, answer.text
    page = ask(app, answer.headers["location"]).text
    (note,) = re.findall(r'role="status">(.*?)</p>', page.partition("<h1>")[0])
    return unescape(note)


def test_create_describe_and_delete_a_topic(app: ASGIApp, console: Console) -> None:
    made = ask(
        app, "/topics", {"name": "made", "partitions": "3", "replicas": "", "settings": "retention.ms=7200000\n"}
    )
    assert note_of(app, made) == "Topic made is created."
    assert len(console.metadata.get().topic("made").partitions) == 3
    assert "7200000" in ask(app, "/topics/made/settings").text
    refused = ask(app, "/topics", {"name": "made"})
    assert refused.status == 409
    assert "TOPIC_ALREADY_EXISTS" in refused.text
    assert ask(app, "/topics/made", {"action": "delete", "confirm": "mad"}).status == 400
    deleted = ask(app, "/topics/made", {"action": "delete", "confirm": "made"})
    assert note_of(app, deleted) == "Topic made is deleted."
    assert ask(app, "/topics/made").status == 404


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"name": ""},
        {"name": "bad name"},
        {"name": "x" * 300},
        {"name": "ok", "partitions": "0"},
        {"name": "ok", "partitions": "-1"},
        {"name": "ok", "partitions": "9" * 5000},
        {"name": "ok", "replicas": "77"},
        {"name": "ok", "settings": "nonsense"},
        {"name": "ok", "settings": "no.such.setting=1"},
    ],
)
def test_a_topic_that_cannot_be(app: ASGIApp, form: dict[str, str]) -> None:
    answer = ask(app, "/topics", form)
    assert answer.status in (400, 409)
    assert 'role="alert"' in answer.text


def test_settings_are_set_and_removed(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "settled")
    note = note_of(app, ask(app, f"/topics/{topic}", {"action": "set", "name": "max.message.bytes", "value": "4321"}))
    assert note == "max.message.bytes is set to 4321."
    assert "4321" in ask(app, f"/topics/{topic}/settings").text
    ask(app, f"/topics/{topic}", {"action": "unset", "name": "max.message.bytes"})
    assert "4321" not in ask(app, f"/topics/{topic}/settings").text
    wrong = ask(app, f"/topics/{topic}", {"action": "set", "name": "max.message.bytes", "value": "many"})
    assert wrong.status == 409
    assert ask(app, f"/topics/{topic}", {"action": "explode"}).status == 400


def test_partitions_purge_and_clone(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "worked", retention_ms="7200000")
    put(console, topic, [b"a", None, b"c"], key=b"k", headers=[("h", b"1")])
    ask(app, f"/topics/{topic}", {"action": "partitions", "count": "2"})
    assert len(console.metadata.get().topic(topic).partitions) == 2
    cloned = ask(app, f"/topics/{topic}", {"action": "clone", "copy": "worked-2", "records": "1"})
    assert note_of(app, cloned) == "worked is cloned, with 3 records."
    before, after = read_all(console, topic), read_all(console, "worked-2")
    assert [(each.key, each.value, list(each.headers), each.timestamp) for each in after] == [
        (each.key, each.value, list(each.headers), each.timestamp) for each in before
    ]
    assert "7200000" in ask(app, "/topics/worked-2/settings").text
    purged = ask(app, f"/topics/{topic}", {"action": "purge", "confirm": topic})
    assert note_of(app, purged) == "3 records are deleted."
    assert read_all(console, topic) == []


def test_produce_and_send_again(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "written", 4)
    form = {"key": "k", "value": '{"a": 1}\r\n', "headers": "trace=1\n\nempty=", "codec": "zstd", "partition": "2"}
    sent = ask(app, f"/topics/{topic}/produce", form)
    assert note_of(app, sent) == "The record is at offset 0 of partition 2."
    (record,) = read_all(console, topic, 2)
    assert (record.key, record.value, record.codec) == (b"k", b'{"a": 1}\n', "zstd")
    assert list(record.headers) == [("trace", b"1"), ("empty", b"")]
    form_page = unescape(ask(app, f"/topics/{topic}/produce?partition=2&offset=0").text)
    assert '{"a": 1}' in form_page
    assert "trace=1" in form_page
    ask(app, f"/topics/{topic}/produce", {"key_kind": "hex", "key": "00 ff", "value_kind": "null", "partition": "3"})
    (tombstone,) = read_all(console, topic, 3)
    assert (tombstone.key, tombstone.value) == (b"\x00\xff", None)
    for wrong in ({"value_kind": "hex", "value": "zz"}, {"partition": "9"}, {"codec": "rar"}, {"headers": "x"}):
        assert ask(app, f"/topics/{topic}/produce", wrong).status in (400, 404), wrong
    assert ask(app, f"/topics/{topic}/produce?partition=2&offset=5").status == 400


def test_dead_letters_go_back(app: ASGIApp, console: Console) -> None:
    origin, letters = make_topic(console, "origin"), make_topic(console, "letters")
    marks = [("__connect.errors.topic", b"origin"), ("__connect.errors.exception.message", b"bad"), ("kept", b"1")]
    put(console, letters, [b"one", b"two"], key=b"k", headers=marks)
    put(console, letters, [b"lost"])
    path = f"/topics/{letters}/redrive"
    assert ask(app, path, {}).status == 400
    refused = ask(app, path, [("record", "0:0"), ("record", "0:2")])  # the last does not know where it came from
    assert refused.status == 409
    assert read_all(console, origin) == []
    sent = ask(app, path, [("record", "0:0"), ("record", "0:1")])
    assert note_of(app, sent) == "Sent back: 2 to origin."
    assert [(each.key, each.value, list(each.headers)) for each in read_all(console, origin)] == [
        (b"k", b"one", [("kept", b"1")]),
        (b"k", b"two", [("kept", b"1")]),
    ]
    ask(app, path, [("record", "0:2"), ("target", "origin")])
    assert read_all(console, origin)[-1].value == b"lost"


def test_a_reset_shows_its_plan_first(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "reread", 2)
    put(console, topic, [b"x"] * 10)
    put(console, topic, [b"x"] * 5, partition=1)
    commit(console, "rereader", topic, {0: 7, 1: 2})
    form = {"topic": "", "target": "shift", "number": "-3"}
    plan = ask(app, "/groups/rereader", {**form, "action": "plan"})
    assert plan.status == 200
    assert "What would happen" in plan.text
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", plan.text.partition("then</th>")[2])]
    assert cells == ["reread", "0", "7", "4", "-3", "6", "reread", "1", "2", "0", "-2", "5"]
    assert committed(console, "rereader") == {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 2}
    assert note_of(app, ask(app, "/groups/rereader", {**form, "action": "reset"})) == "2 offsets are reset."
    assert committed(console, "rereader") == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 0}


@pytest.mark.parametrize(
    ("target", "number", "expected"),
    [("earliest", "", 2), ("latest", "", 10), ("offset", "6", 6), ("offset", "99", 10), ("time", "1700000000004", 4)],
)
def test_targets_of_a_reset(app: ASGIApp, console: Console, target: str, number: str, expected: int) -> None:
    topic, group = make_topic(console, f"target-{target}-{number}"), f"g-{target}-{number}"
    put(console, topic, [b"x"] * 10)
    commit(console, group, topic, {0: 5})
    with console.clients.borrow() as client:
        from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

        part = DeleteRecordsPartition(partition_index=0, offset=2)
        client.ask_leader(topic, 0, DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])]))
    form = {"action": "reset", "target": target, "number": number, "topic": topic, "partitions": "0"}
    assert ask(app, f"/groups/{group}", form).status == 303
    assert committed(console, group) == {TopicPartition(topic, 0): expected}


def test_resets_that_cannot_be(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "stuck")
    put(console, topic, [b"x"])
    commit(console, "stuck", topic, {0: 1})
    for form in (
        {"target": "nowhere"},
        {"target": "offset", "number": "many"},
        {"target": "time", "number": "yesterday"},
        {"target": "shift", "number": ""},
        {"target": "earliest", "topic": "missing"},
        {"target": "earliest", "partitions": "7"},
        {"target": "earliest", "partitions": "a"},
    ):
        assert ask(app, "/groups/stuck", {**form, "action": "reset"}).status in (400, 404), form
    assert committed(console, "stuck") == {TopicPartition(topic, 0): 1}


def test_delete_a_group(app: ASGIApp, console: Console) -> None:
    topic = make_topic(console, "left")
    put(console, topic, [b"x"])
    commit(console, "leaver", topic, {0: 1})
    assert ask(app, "/groups/leaver", {"action": "delete", "confirm": ""}).status == 400
    assert (
        note_of(app, ask(app, "/groups/leaver", {"action": "delete", "confirm": "leaver"}))
        == "Group leaver is deleted."
    )
    assert ask(app, "/groups/leaver").status == 404


def test_a_note_is_not_taken_from_the_address(app: ASGIApp) -> None:
    assert "Your session" not in ask(app, "/topics?note=Your+session+has+ended").text.partition("<h1>")[0]
