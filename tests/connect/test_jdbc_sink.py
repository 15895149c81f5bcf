"""JdbcSink on SQLite and PostgreSQL, without a broker: rows, keys, deletes, refused rows, tables and the ledger."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.peers.postgresql import PostgreSqlServer
from ottla.connect.connectors.jdbc.ledger import NotOwner
from ottla.connect.connectors.jdbc.session import Session
from ottla.connect.connectors.jdbc.sink import JdbcSink
from ottla.connect.errors import ConnectError, RetriableError
from ottla.topic_partition import TopicPartition
from tests.connect.jdbc_databases import Database, create_database, make_records, postgresql_server
from tests.samples import sample_size

WHERE = TopicPartition("t", 0)
KEYED = {"pk_mode": "record_key", "pk_fields": "id", "auto_create": True}
UPSERT = {**KEYED, "insert_mode": "upsert"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSqlServer]:
    with postgresql_server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(f"jdbc:sqlite:{tmp_path / 'test.db'}")
    running: PostgreSqlServer = request.getfixturevalue("server")
    return create_database(running, f"db_{abs(hash(request.node.name)) % 10**9}")


def make_sink(database: Database, **config: Any) -> JdbcSink:
    sink = database.make(JdbcSink, **config)
    sink.find_positions([WHERE])
    return sink


def test_rows_are_inserted_and_the_ledger_moves(database: Database) -> None:
    sink = make_sink(database, **KEYED)
    assert sink.write(make_records(5, [{"id": 1, "name": "a", "amount": 1.5}, {"id": 2}])).refused == []
    assert database.query("SELECT id, name, amount FROM t ORDER BY id") == [(1, "a", 1.5), (2, None, None)]
    assert sink.find_positions([WHERE]) == {WHERE: 7}
    sink.write(make_records(5, [{"id": 1}, {"id": 2}, {"id": 3}]))  # the first two are known already
    assert database.query("SELECT id, name FROM t ORDER BY id") == [(1, "a"), (2, None), (3, None)]


def test_positions_can_be_changed_and_forgotten(database: Database) -> None:
    make_sink(database, **KEYED).write(make_records(5, [{"id": 1, "name": "a"}, {"id": 2}]))
    sink = make_sink(database, **KEYED)
    assert sink.alter_positions({WHERE: 6})
    newer = make_sink(database, **KEYED)
    assert newer.find_positions([WHERE]) == {WHERE: 6}
    assert newer.alter_positions({WHERE: None})
    assert make_sink(database, **KEYED).find_positions([WHERE]) == {}
    with pytest.raises(NotOwner):
        sink.alter_positions({WHERE: 1})


def test_the_last_of_a_key_wins_and_deletes_are_in_order(database: Database) -> None:
    sink = make_sink(database, delete_enabled=True, **UPSERT)
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, None, {"id": 1, "name": "c"}, {"id": 3, "name": "d"}, None]
    sink.write(make_records(0, rows, [1, 2, 1, 1, 3, 3]))
    assert database.query("SELECT id, name FROM t ORDER BY id") == [(1, "c"), (2, "b")]
    sink.write(make_records(6, [{"id": 2, "name": "e"}, None], [2, 1]))
    assert database.query("SELECT id, name FROM t ORDER BY id") == [(2, "e")]


def test_inserts_and_deletes_of_a_key_alternate(database: Database) -> None:
    sink = make_sink(database, delete_enabled=True, **KEYED)
    sink.write(make_records(0, [{"id": 1, "name": "a"}, None, {"id": 1, "name": "b"}], [1, 1, 1]))
    assert database.query("SELECT id, name FROM t") == [(1, "b")]


def test_updates_change_rows_that_are_there(database: Database) -> None:
    make_sink(database, **KEYED).write(make_records(0, [{"id": 1, "name": "a"}]))
    sink = make_sink(database, insert_mode="update", **KEYED)
    sink.write(make_records(1, [{"id": 1, "name": "b"}, {"id": 1, "name": "c"}, {"id": 2, "name": "d"}]))
    assert database.query("SELECT id, name FROM t") == [(1, "c")]


def test_refused_rows_are_found_one_by_one(database: Database) -> None:
    database.run("CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL, amount float)")
    sink = make_sink(database, **UPSERT)
    rows = [{"id": n % 50, "name": None if n in (7, 61, 90) else f"n{n}"} for n in range(100)]
    refused = sink.write(make_records(0, rows)).refused
    assert [each.record.offset for each in refused] == [7, 61, 90]
    assert all(each.reason.startswith(("public.t: ", "t: ")) and "\n" not in each.reason for each in refused)
    found = dict(database.query("SELECT id, name FROM t"))
    assert len(found) == 50
    assert (found[7], found[11], found[40], found[49]) == ("n57", "n11", "n40", "n99")
    assert sink.find_positions([WHERE]) == {WHERE: 100}


def test_keys_of_the_record_s_place(database: Database) -> None:
    sink = make_sink(database, pk_mode="kafka", insert_mode="upsert", auto_create=True, fields_whitelist="name")
    sink.write(make_records(3, [{"id": 1, "name": "a"}]))
    assert database.query("SELECT * FROM t") == [("t", 0, 3, "a")]


def test_tables_are_created_and_evolve_only_if_allowed(database: Database) -> None:
    with pytest.raises(ConnectError, match=r"the table t does not exist, and auto\.create is false"):
        make_sink(database).write(make_records(0, [{"id": 1}]))
    database.run("CREATE TABLE t (id bigint PRIMARY KEY)")
    with pytest.raises(ConnectError, match=r"has no column name, amount, and auto\.evolve is false"):
        make_sink(database).write(make_records(0, [{"id": 1}]))
    make_sink(database, auto_evolve=True).write(make_records(0, [{"id": 1, "name": "x"}]))
    assert database.query("SELECT id, name FROM t") == [(1, "x")]


def test_an_earlier_owner_is_shut_out(database: Database) -> None:
    old = make_sink(database, **KEYED)
    old.write(make_records(0, [{"id": 1}]))
    new = make_sink(database, **KEYED)
    with pytest.raises(NotOwner):
        old.write(make_records(1, [{"id": 2}]))
    with pytest.raises(NotOwner):
        old.find_positions([WHERE])
    assert new.find_positions([WHERE]) == {WHERE: 1}
    assert database.query("SELECT id FROM t") == [(1,)]


class Died(BaseException):
    """Stands for a kill: nothing of ours catches it, and the connection ends."""


def write_with_a_death(database: Database, name: str) -> bool:
    """Write two batches as a worker does, after a death with a new sink. Whether there was one."""
    batches = [make_records(0, [{"id": 1}, {"id": 2}]), make_records(2, [{"id": 3}])]
    has_died = False
    for _ in range(2):
        try:
            sink = database.make(JdbcSink, name=name)
            for batch in batches:
                if sink.find_positions([WHERE]).get(WHERE, 0) < batch.end:
                    sink.write(batch)
            break
        except Died:
            has_died = True
    return has_died


def die_at_steps(database: Database, steps: Iterable[int], when: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Die before or after the n-th call to the database, for these n; then another writer goes on: each row once.

    True if a writer came to its end before its step.
    """
    left = [0]

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and when == "before":
                raise Died
            answer = call(*values)
            if left[0] == 0:
                raise Died
            return answer

        return wrapped

    for name in ("query", "execute", "commit"):
        monkeypatch.setattr(Session, name, dying(getattr(Session, name)))
    database.run("CREATE TABLE t (id bigint, name text, amount float)")
    for step in steps:
        left[0] = step
        has_died = write_with_a_death(database, f"run-{step}")
        left[0] = 0
        assert sorted(database.query("SELECT id FROM t")) == [(1,), (2,), (3,)], step
        database.run("DELETE FROM t")
        if not has_died:
            return True
    return False


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_may_die_at_some_steps(
    database: Database, when: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at_steps(database, Random(seed).sample(range(1, 40), 5), when, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_may_die_at_every_step(database: Database, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert die_at_steps(database, range(1, 200), when, monkeypatch)


def test_a_crash_of_the_server_loses_and_repeats_nothing(
    server: PostgreSqlServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stops at once, in the middle of a batch or in the middle of its commit."""
    database = create_database(server, "crashes")
    random, crash_at, calls = Random(seed), [0], [0]
    real: dict[str, Callable[..., Any]] = {name: getattr(Session, name) for name in ("query", "execute", "commit")}

    def crashing(name: str) -> Callable[..., Any]:
        def wrapped(*values: Any) -> Any:
            calls[0] += 1
            if calls[0] == crash_at[0]:
                server.stop()
                server.start()
            return real[name](*values)

        return wrapped

    for name in real:
        monkeypatch.setattr(Session, name, crashing(name))
    sink = make_sink(database, **KEYED)
    batches = sample_size(2, 4)
    for number in range(batches):
        batch = make_records(number * 10, [{"id": number * 10 + n} for n in range(10)])
        calls[0], crash_at[0] = 0, random.randrange(2, 14)
        while True:
            try:
                if sink.find_positions([WHERE]).get(WHERE, 0) == batch.end:
                    break
                sink.write(batch)
            except RetriableError:
                continue
    crash_at[0] = 0
    assert database.query("SELECT id FROM t ORDER BY id") == [(n,) for n in range(10 * batches)]
