"""When a state server may continue with the files that it has, and when it must begin anew."""

import time
from contextlib import closing
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import ottla
from ottla.client.client import Client
from ottla.streams.formats import RecordFormat
from ottla.streams.kernels.kernel import StoreSpec
from ottla.streams.planning.plan import StorePlan
from ottla.streams.planning.planner import make_plan
from ottla.streams.running.internal_topics import create_internal_topics
from ottla.streams.state import protocol
from ottla.streams.state.assignments import describe_store
from ottla.streams.state.client import StateClient
from ottla.streams.state.protocol import Frame, StateLost, decode_frame, encode_frame
from ottla.streams.state.service import RESTORES, StateService
from ottla.streams.state.tables import TableMemory
from ottla.streams.state.tailing import ClientPool
from ottla.streams.windows import tumbling
from ottla.testing import LocalBroker
from ottla.testing import broker as local_broker
from tests.patience import PATIENCE_S
from tests.scenarios.test_compaction import wait_until
from tests.streams.changelogs import TOPIC, Changelog, plan_store, run_server
from tests.unit.streams.planning.topologies import count, source


def read_all(client: StateClient, upto: int, store: str = "counts") -> dict[bytes, bytes]:
    return dict(client.reader(store, 0, upto).range(b"", None))


def test_a_topic_that_was_created_again_is_read_from_its_beginning(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # Once while the server runs, once while it is down. The new topic is shorter, then longer than the old one.
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})

    def begin_again(changes: dict[bytes, bytes | None]) -> int:
        for done in admin.delete_topics([TOPIC]).values():
            done.result(PATIENCE_S)
        ottla_broker.create_topic(TOPIC)
        return Changelog(ottla_broker).write(changes)

    ottla_broker.create_topic(TOPIC)
    end = Changelog(ottla_broker).write({b"old-%d" % number: b"1" for number in range(5)})
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: end}, 1)
        assert len(read_all(client, end)) == 5
        end = begin_again({b"second": b"2"})
        assert read_all(client, end) == {b"second": b"2"}
        assert client.status()[0]["wiped"] == "the topic was created again"
    end = begin_again({b"third-%d" % number: b"3" for number in range(9)})
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: end}, 1)
        assert read_all(client, end) == {b"third-%d" % number: b"3" for number in range(9)}


def test_a_changelog_that_has_lost_records_is_no_state(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # Whether the server runs or is down while they are deleted: nobody gets values that are too old.
    ottla_broker.create_topic(TOPIC)
    changelog = Changelog(ottla_broker)
    first = changelog.write({b"a": b"1"})
    admin = AdminClient({"bootstrap.servers": ottla_broker.bootstrap})
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: first}, 1)
        assert read_all(client, first) == {b"a": b"1"}
        gone = changelog.write({b"a": b"2"})
        end = changelog.write({b"c": b"3"})
        for done in admin.delete_records([TopicPartition(TOPIC, 0, gone)]).values():
            done.result(PATIENCE_S)
        with pytest.raises(StateLost, match=rf"offset {first} does not exist.*ottla stream reset"):
            read_all(client, end)
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: end}, 1)
        with pytest.raises(StateLost):
            read_all(client, end)


def test_windows_of_old_events_stay_in_their_changelog(tmp_path: Path) -> None:
    # A broker that deletes old records at once: it may not delete state, in changelogs of older versions neither.
    with local_broker(log_initial_task_delay_ms=1, log_retention_check_interval_ms=10) as broker:
        broker.create_topic("rows")
        broker.create_topic("retained")  # shows that the broker has deleted what it may
        broker.create_topic("old-windows-changelog", cleanup_policy="compact,delete", retention_ms=86_400_000)
        with closing(Client({"bootstrap.servers": broker.bootstrap})) as client:
            counts = {"rows": 1}
            plan = make_plan("old", [count(source("rows"), "windows", tumbling("1 minute"))], counts)
            assert "old-windows-closing-changelog" in create_internal_topics(client, plan, counts)
        changelogs = [each.name for each in plan.internal_topics]
        ends = {topic: Changelog(broker, topic).write({b"a": b"1"}, timestamp=1) for topic in changelogs}
        retained = Changelog(broker, "retained")
        retained.write({b"a": b"1"}, timestamp=1)
        wait_until(lambda: retained.begin() > 0, "the retention")
        with run_server(broker, tmp_path) as (_, client):
            for topic in changelogs:
                client.assign(plan_store(topic, topic), {0: ends[topic]}, 1)
                assert read_all(client, ends[topic], topic) == {b"a": b"1"}


def test_a_key_whose_tombstone_was_missed_does_not_come_back(tmp_path: Path) -> None:
    # While the server is down, a key is deleted, and compaction removes the tombstone as well.
    with local_broker(log_cleaner_backoff_ms=50) as broker:
        broker.create_topic(
            TOPIC,
            cleanup_policy="compact",
            internal_segment_bytes=20_000,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=0,
        )
        changelog = Changelog(broker)
        end = changelog.write({b"kept": b"1", b"deleted": b"1"})
        with run_server(broker, tmp_path) as (_, client):
            client.assign(plan_store(), {0: end}, 1)
            assert read_all(client, end) == {b"kept": b"1", b"deleted": b"1"}
        changelog.write({b"deleted": None})

        def is_tombstone_gone() -> bool:
            changelog.write({b"more-%d" % number: b"x" * 500 for number in range(100)})
            read = ottla.read(TOPIC, bootstrap=broker.bootstrap, columns=["key"])
            return b"deleted" not in read.to_arrow()["key"].to_pylist()

        wait_until(is_tombstone_gone, "the removal of the tombstone")
        end = changelog.end()
        with run_server(broker, tmp_path) as (_, client):
            client.assign(plan_store(), {0: end}, 1)
            found = read_all(client, end)
            assert found.keys() == {b"kept", *(b"more-%d" % number for number in range(100))}
            assert "tombstones may have been missed" in client.status()[0]["wiped"]


def test_an_assignment_may_go_back(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # As after a reset of the app's offsets: the driver that assigns is right, a task that asks is not.
    ottla_broker.create_topic(TOPIC)
    changelog = Changelog(ottla_broker)
    first = changelog.write({b"a": b"1"})
    last = changelog.write({b"a": b"2"})
    with run_server(ottla_broker, tmp_path) as (_, client):
        client.assign(plan_store(), {0: last}, 1)
        assert read_all(client, last) == {b"a": b"2"}
        client.assign(plan_store(), {0: first}, 1)
        wait_until(lambda: client.status()[0]["position"] == first, "the restore")
        assert read_all(client, first) == {b"a": b"1"}


def test_a_restore_that_comes_late_does_not_take_back_what_batches_have_brought(
    ottla_broker: LocalBroker, tmp_path: Path
) -> None:
    # Many tables wait for their restore at the start of an app. A batch does not, and brings its table further.
    ottla_broker.create_topic(TOPIC)
    end = Changelog(ottla_broker).write({b"a": b"1"})
    clients = ClientPool(lambda: Client({"bootstrap.servers": ottla_broker.bootstrap}))
    # Its seconds stand still: a request that takes long on a slow machine is not told to ask again.
    service = StateService(
        str(tmp_path), TableMemory(), clients, now_ms=lambda: int(time.time() * 1000), seconds=lambda: 0.0
    )

    def ask(kind: int, payload: bytes = b"", **fields: object) -> Frame:
        answer = decode_frame(service.handle(decode_frame(encode_frame(kind, fields, payload)[4:]))[4:])
        assert answer.kind == protocol.OK
        return answer

    try:
        blocked = Event()
        for _ in range(RESTORES):
            service._restores.submit(blocked.wait)
        ask(protocol.ASSIGN, store=describe_store(plan_store()), partitions={"0": 0}, partition_count=1)
        key = protocol.pack_many([b"a"])
        table = {"store": "counts", "partition": 0}
        assert protocol.unpack_many(ask(protocol.GET_MANY, key, **table, upto=end).payload) == [b"1"]
        blocked.set()
        service._restores.shutdown()
        assert protocol.unpack_many(ask(protocol.GET_MANY, key, **table).payload) == [b"1"]
        assert ask(protocol.STATUS).fields["tables"][0]["wiped"] is None
    finally:
        blocked.set()
        service.close(PATIENCE_S)


def test_a_dropped_table_is_not_served_and_can_come_back(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    ottla_broker.create_topic(TOPIC)
    end = Changelog(ottla_broker).write({b"a": b"1"})
    with run_server(ottla_broker, tmp_path) as (_, client):
        for wipe in (False, True, False):
            client.assign(plan_store(), {0: end}, 1)
            assert read_all(client, end) == {b"a": b"1"}
            records = client.status()[0]["records"]
            client.drop("counts", 0, wipe=wipe)
            assert client.status() == []
        assert records == 1  # it was read again because the files were removed


def plan_users(*columns: tuple[str, pa.DataType], time: str | None = None) -> StorePlan:
    key, value = pa.schema([("id", pa.int64())]), pa.schema(columns)
    return StorePlan(
        StoreSpec("users", is_source=True),
        "users",
        key,
        value,
        key_format=RecordFormat("json", type=pa.struct(list(key))),
        value_format=RecordFormat("json", type=pa.struct(list(value))),
        time=time,
    )


def test_the_table_of_a_source_topic_holds_what_its_rows_say(ottla_broker: LocalBroker, tmp_path: Path) -> None:
    # JSON keys and values of users become those of a store; what cannot be read is left out and counted. Other columns
    # make other values, so the table is made anew.
    ottla_broker.create_topic("users", retention_ms=-1)  # the records are very old
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    records = [
        (b'{"id": 1}', b'{"name": "Ann", "at": 7, "extra": true}'),
        (b'{ "id":2 }', b'{"name": "Bob", "at": 8}'),
        (b'{"id": 3}', b'{"name": "Cid", "at": 9}'),
        (b'{"id": 3}', None),
        (b'{"id": 2}', b"not JSON"),
        (None, b'{"name": "nobody", "at": 9}'),
    ]
    for record in records:
        producer.produce("users", record[1], record[0], timestamp=1000)
    producer.flush(PATIENCE_S)
    name, at = ("name", pa.string()), ("at", pa.int64())
    for plan, ann, bob in (
        (plan_users(name, at), b'{"name":"Ann","at":7,"_timestamp":1000}', b'{"name":"Bob","at":8,"_timestamp":1000}'),
        (
            plan_users(name, at, time="at"),
            b'{"name":"Ann","at":7,"_timestamp":7}',
            b'{"name":"Bob","at":8,"_timestamp":8}',
        ),
        (plan_users(name), b'{"name":"Ann","_timestamp":1000}', b'{"name":"Bob","_timestamp":1000}'),
    ):
        with run_server(ottla_broker, tmp_path) as (_, client):
            client.assign(plan, {0: len(records)}, 1)
            assert read_all(client, len(records), "users") == {_long(1): ann, _long(2): bob}
            assert client.status()[0]["bad_records"] == 1


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big")
