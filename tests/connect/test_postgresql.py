"""Change capture of a real PostgreSQL server, round by round."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ottla.connect.connector import partition_key
from ottla.connect.connectors.postgresql import changes, snapshots
from ottla.connect.connectors.postgresql.connecting import connect, execute, query_rows
from ottla.connect.data.columns import RecordColumns
from ottla.connect.data.conversion import columns_to_records
from ottla.connect.errors import ConnectError
from tests.connect.postgresql import Database, postgresql, simplify
from tests.connect.runs import wait_until
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    with postgresql() as running:
        yield running


def test_rows_then_changes(server: Database) -> None:
    """Each row and change once, in order, with keys, tombstones, and a deletion and a creation where a key changes."""
    database = server.create("changes")
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL, amount numeric(10, 2))",
        "INSERT INTO orders VALUES (1, 'tea', 2.50), (2, 'milk', NULL)",
    )
    capture = database.capture(table_include_list="public.ord.*")
    topic, rows = "shop.public.orders", capture.run()
    assert [simplify(each)[1:3] for each in rows] == [({"id": 1}, "r"), ({"id": 2}, "r")]
    assert rows[0].value["source"]["snapshot"] == "true"
    database.run(
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO orders VALUES (3, 'rum', 9)",
        "UPDATE orders SET item = 'gin' WHERE id = 3",
        "UPDATE orders SET id = 4 WHERE id = 3",
        "DELETE FROM orders WHERE id = 4",
    )
    rum, gin = ({"id": 3, "item": item, "amount": 9} for item in ("rum", "gin"))
    # Of a row that is gone the log has the key only; a required column is then empty, as with Debezium.
    assert [simplify(each) for each in capture.run()] == [
        (topic, {"id": 3}, "c", None, rum),
        (topic, {"id": 3}, "u", None, gin),
        (topic, {"id": 3}, "d", {"id": 3, "item": "", "amount": None}, None),
        (topic, {"id": 3}, None),
        (topic, {"id": 4}, "c", None, {**gin, "id": 4}),
        (topic, {"id": 4}, "d", {"id": 4, "item": "", "amount": None}, None),
        (topic, {"id": 4}, None),
    ]
    assert capture.records[-2].value["source"]["txId"] > 0
    assert capture.run() == []


def test_values_of_all_types_are_the_same_in_rows_and_in_the_log(server: Database) -> None:
    database = server.create("types")
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN price AS numeric(6, 2)",
        "CREATE TABLE source (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 real, f8 float8, n numeric, p price, "
        "c char(5), v varchar(9), t text, by bytea, j jsonb, u uuid, d date, ti time, t0 time(0), ts timestamp, "
        "t3 timestamp(3), tz timestamptz, ttz timetz, iv interval, ia int[], ta text[], m mood, ip inet, b1 bit(1), "
        "vb varbit)",
        "CREATE TABLE types (LIKE source INCLUDING ALL)",
        "INSERT INTO source VALUES (1, true, -2, 9007199254740993, 1.5, 'NaN', 12.345, 1.5, 'ab', 'v', 'ä\\n', "
        "'\\x00ff', '{\"a\": [1]}', '00000000-0000-0000-0000-00000000000a', '2024-02-29', '03:04:05.123456', "
        "'03:04:05', '2024-01-02 03:04:05.5', '2024-01-02 03:04:05.123', '2024-01-02 03:04:05.5+02', '03:04:05+02', "
        "'1 mon -2 days 04:05:06.7', '{1,NULL,3}', ARRAY['a b', 'c\"d', 'NULL', NULL], 'ok', '10.0.0.1', '1', '101'), "
        "(2, false, 0, 0, 0, 'Infinity', 'NaN', NULL, '', '', '', '', '[]', NULL, '0044-03-15 BC', '24:00', NULL, "
        "'infinity', '-infinity', 'infinity', NULL, '-1 sec', '{}', '{}', 'sad', '::1', '0', '')",
        "INSERT INTO source (id) VALUES (3)",
        "INSERT INTO types SELECT * FROM source",
    )
    capture = database.capture(table_include_list="public.types")
    rows = [each.value["after"] for each in capture.run()]
    database.run("UPDATE types SET id = id + 10", "INSERT INTO types SELECT * FROM source")
    logged = [each.value["after"] for each in capture.run() if each.value and each.value["op"] == "c"]
    assert repr(logged[3:]) == repr(rows)
    assert repr([{**each, "id": each["id"] - 10} for each in logged[:3]]) == repr(rows)
    first = rows[0]
    assert first["n"] == {"scale": 3, "value": (12345).to_bytes(2)}
    assert (first["c"], first["d"], first["ti"], first["t0"]) == ("ab   ", 19_782, 11_045_123_456, 11_045_000)
    assert (first["ts"], first["t3"]) == (1_704_164_645_500_000, 1_704_164_645_123)
    assert (first["tz"], first["ttz"]) == ("2024-01-02T01:04:05.5Z", "01:04:05Z")
    assert first["iv"] == int(28.4375 * 86_400_000_000) + 14_706_700_000
    assert (first["ia"], first["ta"]) == ([1, None, 3], ["a b", 'c"d', "NULL", None])
    assert (rows[1]["d"], rows[1]["ti"], rows[1]["ts"]) == (-735_160, 86_400_000_000, 9_223_372_036_825_200_000)
    assert set(rows[2].values()) == {3, None}


def test_large_values_that_were_not_touched(server: Database) -> None:
    """They are not in the log: Debezium's placeholder stands for them, unless the replica identity is FULL."""
    database = server.create("toast")
    database.run(
        "CREATE TABLE notes (id int PRIMARY KEY, n int, body text, raw bytea)",
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL",
        "INSERT INTO notes VALUES (1, 0, repeat('x', 9000), decode(repeat('00', 9000), 'hex'))",
    )
    capture = database.capture()
    capture.run()
    database.run("UPDATE notes SET n = 1", "ALTER TABLE notes REPLICA IDENTITY FULL", "UPDATE notes SET n = 2")
    first, second = (each.value for each in capture.run())
    assert first["before"] is None
    assert first["after"] == {
        "id": 1, "n": 1, "body": "__debezium_unavailable_value", "raw": b"__debezium_unavailable_value",
    }  # fmt: skip
    assert second["before"] == {"id": 1, "n": 1, "body": "x" * 9000, "raw": bytes(9000)}
    assert second["after"] == {**second["before"], "n": 2}


def test_a_table_changes_its_columns(server: Database) -> None:
    database = server.create("columns")
    database.run("CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'x')")
    capture = database.capture(column_exclude_list="public.items.secret")
    capture.run()
    database.run(
        "INSERT INTO items VALUES (2, 'y')",
        "ALTER TABLE items ADD b int, ADD secret text",
        "INSERT INTO items VALUES (3, 'z', 7, 'hush')",
        "ALTER TABLE items DROP a",
        "INSERT INTO items VALUES (4, 8, 'hush')",
        "TRUNCATE items",
    )
    assert [each.value["after"] for each in capture.run()] == [
        {"id": 2, "a": "y"},
        {"id": 3, "a": "z", "b": 7},
        {"id": 4, "b": 8},
    ]


def test_truncation_is_written_if_it_is_not_skipped(server: Database) -> None:
    database = server.create("truncating")
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int)")
    capture = database.capture(skipped_operations="none", snapshot_mode="no_data")
    capture.run()
    database.run("INSERT INTO a VALUES (1)", "TRUNCATE a, b")
    assert sorted(simplify(each)[:3] for each in capture.run() if each.key is None) == [
        ("shop.public.a", None, "t"),
        ("shop.public.b", None, "t"),
    ]


def test_a_huge_transaction_is_written_in_pieces(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every change once and in order, though each piece is read from the beginning of the transaction."""
    monkeypatch.setattr(changes, "MAX_ROWS", 300)
    monkeypatch.setattr(changes, "BATCH_ROWS", 200)
    database = server.create("huge")
    database.run("CREATE TABLE numbers (id int PRIMARY KEY)")
    capture = database.capture()
    capture.run()
    database.run(
        "INSERT INTO numbers VALUES (0)",
        "INSERT INTO numbers SELECT generate_series(1, 2500)",
        "INSERT INTO numbers VALUES (2501)",
    )
    offsets = []
    while capture.run_round(batches_max=3):
        offsets.append(capture.offsets['{"server": "shop"}'])
    assert [each.key["id"] for each in capture.records] == list(range(2502))
    assert len([each for each in offsets if each["seq"]]) >= 3


def test_an_interrupted_snapshot_goes_on(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes between two chunks appear once: in the rows, or after them."""
    monkeypatch.setattr(snapshots, "FETCH_ROWS", 10)
    monkeypatch.setattr(snapshots, "MAX_ROWS", 10)
    database = server.create("chunks")
    database.run(
        "CREATE TABLE parts (a text, b int, v int, PRIMARY KEY (b, a))",
        "INSERT INTO parts SELECT 'é' || n % 7, n, 0 FROM generate_series(1, 35) n",
    )
    first = database.capture()
    first.run_round()
    assert len(first.records) == 10
    database.run("UPDATE parts SET v = 1 WHERE b IN (5, 25)", "UPDATE parts SET b = 36 WHERE b = 6")
    database.run("UPDATE parts SET b = 0 WHERE b = 35")
    again = database.capture()
    again.offsets, again.records = first.offsets, first.records
    again.run()
    table: dict[tuple[str, int], int] = {}
    for each in again.records:
        key = (each.key["a"], each.key["b"])
        if each.value is None:
            continue
        op, after = each.value["op"], each.value["after"]
        assert (key in table) == (op in "ud"), each
        if after is None:
            del table[key]
        else:
            table[key] = after["v"]
    rows = database.query("SELECT a, b, v FROM parts")
    assert table == {(row["a"], row["b"]): row["v"] for row in rows}
    assert [each.value["op"] for each in again.records if each.value].count("r") == 35


def test_a_chunk_is_one_snapshot(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed while a task reads is not in its rows, and appears once, after them."""
    monkeypatch.setattr(snapshots, "FETCH_ROWS", 10)
    database = server.create("snapshot")
    database.run(
        "CREATE TABLE a (id int PRIMARY KEY, v int)", "INSERT INTO a SELECT n, 0 FROM generate_series(1, 15) n"
    )
    capture = database.capture()
    (part,) = capture.source.plan({})
    batches = capture.source.read(part, None)
    next(batches)
    database.run("UPDATE a SET v = 1 WHERE id IN (1, 15)")
    (last,) = batches
    (rows,) = last.rows
    assert isinstance(rows, RecordColumns)
    assert [each.value["after"]["v"] for each in columns_to_records(rows)] == [0] * 5
    assert last.offset is not None
    capture.offsets[partition_key(part.partition)] = last.offset
    assert [simplify(each)[1:3] for each in capture.run()] == [({"id": 1}, "u"), ({"id": 15}, "u")]


def test_a_slot_that_somebody_else_has_moved_is_an_error(server: Database) -> None:
    """Reading on would silently leave changes out; so would a new slot."""
    database = server.create("moved")
    database.run("CREATE TABLE a (id int PRIMARY KEY)")
    capture = database.capture()
    capture.run()
    database.run("INSERT INTO a VALUES (1)")
    database.query("SELECT pg_replication_slot_advance('slot_moved', pg_current_wal_flush_lsn())::text AS lsn")
    with pytest.raises(ConnectError, match="changes are lost"):
        capture.run_round()
    database.query("SELECT pg_drop_replication_slot('slot_moved')::text AS gone")
    again = database.capture()
    again.offsets = capture.offsets
    with pytest.raises(ConnectError, match="slot_moved is gone"):
        again.run_round()


def test_a_log_without_captured_changes_lets_the_slot_advance(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.connect.connectors.postgresql.source.IDLE_WAL_BYTES", 100_000)
    database = server.create("idle")
    database.run("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (t text)")
    capture = database.capture(publication_autocreate_mode="filtered", table_include_list="public.a")
    capture.run()
    position = (
        "SELECT (confirmed_flush_lsn - '0/0')::int8 AS lsn FROM pg_replication_slots WHERE slot_name = 'slot_idle'"
    )
    before = database.query(position)[0]["lsn"]
    assert not capture.run_round()
    database.run("INSERT INTO b SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
    assert capture.run() == []
    assert database.query(position)[0]["lsn"] - before > 500_000


def test_a_commit_that_waits_for_a_synchronous_standby(server: Database) -> None:
    """It is in the log before the slot begins, and no reader of the table sees it yet: it is not missed.

    The server makes a slot in three steps. Each waits for the transactions that it finds running, and the transaction
    in question begins and commits between the last two.
    """
    database = server.create("standby")
    database.run("CREATE TABLE orders (id int PRIMARY KEY)")
    with closing(connect(database.server)) as first, closing(connect(database.server)) as second:
        execute(first, "BEGIN; SELECT pg_current_xact_id()")
        capture = database.capture()
        planned = threading.Thread(target=lambda: capture.source.plan({}), daemon=True)
        planned.start()
        wait_until(lambda: is_waited_for(database))
        execute(second, "BEGIN; SELECT pg_current_xact_id()")
        held = read_transaction(second)
        execute(first, "ROLLBACK")
        wait_until(lambda: is_waited_for(database, held))
        committing = threading.Thread(target=lambda: database.run("INSERT INTO orders VALUES (1)"), daemon=True)
        try:
            database.run("ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
            wait_until(lambda: query_text(database, "SELECT current_setting('synchronous_standby_names')") == "away")
            committing.start()
            wait_until(lambda: has_wait(database, "SyncRep"))
            execute(second, "ROLLBACK")
            planned.join(PATIENCE_S)
            assert not capture.run()
            assert query_text(database, "SELECT count(*)::text FROM orders") == "0"
        finally:
            database.run("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        committing.join(PATIENCE_S)
        assert [simplify(each)[1:3] for each in capture.run()] == [({"id": 1}, "r")]


def query_text(database: Database, sql: str) -> str:
    return str(next(iter(database.query(sql)[0].values())))


def read_transaction(connection: "Connection") -> str:
    return str(query_rows(connection, "SELECT pg_current_xact_id()::text AS id")[0]["id"])


def has_wait(database: Database, event: str) -> bool:
    return bool(database.query(f"SELECT 1 AS one FROM pg_stat_activity WHERE wait_event = '{event}'"))


def is_waited_for(database: Database, transaction: str = "") -> bool:
    """Whether somebody waits for the end of this transaction, or of any."""
    which = f" AND transactionid = '{transaction}'" if transaction else ""
    return bool(
        database.query(f"SELECT 1 AS one FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted{which}")
    )
