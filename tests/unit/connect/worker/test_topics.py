"""The topics of a worker against a real broker: what is written is read back in order, aborted writes are not."""

from collections.abc import Iterator
from threading import Timer

import pytest

from ottla.client.client import Client
from ottla.client.sending import Sender
from ottla.client.transactions import end_transaction, init_producer
from ottla.connect.errors import ConnectError
from ottla.connect.worker.offsets import SourceOffsets, make_offset_key, read_offset_key
from ottla.connect.worker.topics import TopicForm, TopicReader, create_store_topic, encode_records
from ottla.testing import LocalBroker

TOPIC = "connect-offsets"
FORM = TopicForm(TOPIC, 3, -1, {"segment.ms": "3600000"})


@pytest.fixture
def client(ottla_broker: LocalBroker) -> Iterator[Client]:
    found = Client({"bootstrap.servers": ottla_broker.bootstrap, "retry.backoff.ms": "5"})
    yield found
    found.close()


def write(client: Client, *records: tuple[str, object]) -> None:
    sender = Sender(client)
    sender.send_all(encode_records(client, TOPIC, records))
    sender.flush()


def test_a_reader_goes_on_where_it_stopped(client: Client) -> None:
    create_store_topic(client, FORM)
    create_store_topic(client, FORM)  # it exists, and is compacted
    reader = TopicReader(client, [TOPIC])
    write(client, ("a", {"n": 1}), ("b", {"n": 2}), ("a", None))
    first = [*reader.read()]
    assert [(each.key, each.value) for each in first if each.key == "a"] == [("a", {"n": 1}), ("a", None)]
    assert len(first) == 3
    assert [*reader.read()] == []
    write(client, ("c", {}))
    assert [each.key for each in reader.read()] == ["c"]


def test_aborted_records_are_not_read(client: Client) -> None:
    create_store_topic(client, FORM)
    producer = init_producer(client, "w")
    sender = Sender(client, producer)
    sender.send_all(encode_records(client, TOPIC, [("a", 1)]))
    sender.flush()
    reader = TopicReader(client, [TOPIC])
    assert [*reader.read()] == []
    end_transaction(client, producer, commit=False)
    assert [*reader.read()] == []


def test_a_topic_that_is_not_compacted_is_refused(ottla_broker: LocalBroker, client: Client) -> None:
    ottla_broker.create_topic(TOPIC, 1)
    with pytest.raises(ConnectError, match=r"cleanup\.policy=delete"):
        create_store_topic(client, FORM)
    with pytest.raises(ConnectError, match="has to be compact"):
        create_store_topic(client, TopicForm("other", 1, -1, {"cleanup.policy": "delete"}))


def test_offsets_are_those_of_kafka_connect(client: Client) -> None:
    create_store_topic(client, FORM)
    write(
        client,
        ('["files",{"b":1,"a":"x"}]', {"position": 7}),
        ('["files",{"a":"y"}]', {"position": 9}),
        ('["files",{"a":"y"}]', None),
        ('["other",{"a":"x"}]', {"position": 1}),
        ("no key of Kafka Connect", {"position": 1}),
    )
    offsets = SourceOffsets(client, TOPIC)
    offsets.refresh()
    assert offsets.list_offsets("files") == [({"b": 1, "a": "x"}, {"position": 7})]
    assert offsets.find_key("files", {"a": "x", "b": 1}) == '["files",{"b":1,"a":"x"}]'
    assert offsets.find_key("files", {"a": "y"}) == make_offset_key("files", {"a": "y"}) == '["files",{"a":"y"}]'


@pytest.mark.parametrize("key", ["", "[]", '["a"]', '["a",1]', "[1,{}]", "\x00"])
def test_other_keys_are_no_offsets(key: str) -> None:
    assert read_offset_key(key) is None


def test_offsets_behind_an_open_transaction_are_waited_for(client: Client) -> None:
    """The transaction of one connector is open; that of another one, behind it, is committed and must be found."""
    create_store_topic(client, TopicForm(TOPIC, 1, -1, {}))
    producers = [init_producer(client, name) for name in ("first", "second")]
    for producer in producers:
        sender = Sender(client, producer)
        key = make_offset_key(producer.transactional_id or "", {"file": "x"})
        sender.send_all(encode_records(client, TOPIC, [(key, {"position": 1})]))
        sender.flush()
    end_transaction(client, producers[1], commit=True)
    offsets = SourceOffsets(client, TOPIC)
    other = Client(client.raw_settings)
    ending = Timer(0.1, lambda: end_transaction(other, producers[0], commit=False))
    ending.start()
    offsets.refresh()
    ending.join()
    other.close()
    assert offsets.list_offsets("second") == [({"file": "x"}, {"position": 1})]
    assert offsets.list_offsets("first") == []
