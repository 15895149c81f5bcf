"""Two writers change a table while it is captured and the capture is killed: each change arrives once and in order."""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.client.client import LATEST, READ_COMMITTED, Client
from ottla.connect.connectors.postgresql.connecting import Server, connect, execute, query_rows
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.connect.capturing import SIZES
from tests.connect.postgresql import Database, postgresql
from tests.connect.runs import read_records, wait_until
from tests.connect.test_kills import Driver

TOPIC = "shop.public.stock"
ROWS = 300
STEPS = 150
"""Of each writer before a kill. Half as many records at least come of them."""
KILLS = int(os.environ.get("OTTLA_KILLS", "6"))
LAST_ID = 1_000_000
"""Of the row that is written last."""

HISTORY = """
CREATE TABLE stock (id int PRIMARY KEY, v int NOT NULL);
CREATE TABLE history (seq bigserial, op text, id int, v int);
CREATE FUNCTION remember() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'UPDATE' AND OLD.id = NEW.id THEN
    INSERT INTO history (op, id, v) VALUES ('u', NEW.id, NEW.v);
  ELSE
    IF TG_OP <> 'INSERT' THEN INSERT INTO history (op, id) VALUES ('d', OLD.id); END IF;
    IF TG_OP <> 'DELETE' THEN INSERT INTO history (op, id, v) VALUES ('c', NEW.id, NEW.v); END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER remember AFTER INSERT OR UPDATE OR DELETE ON stock FOR EACH ROW EXECUTE FUNCTION remember();
"""
"""The table, and every committed change of it as the server saw it: changes of one row are in order."""


class Writer:
    """Changes rows in transactions that stay open over several steps, and avoids the rows of the other's."""

    def __init__(self, server: Server, random: Random, locked: dict["Writer", set[int]]) -> None:
        self._connection = connect(server)
        self._random = random
        self._locked = locked
        locked[self] = set()

    def step(self, value: int) -> None:
        """Does one change, or ends the transaction."""
        random, mine = self._random, self._locked[self]
        if mine and random.random() < 0.25:
            self.end()
            return
        taken = set().union(*(keys for writer, keys in self._locked.items() if writer is not self))
        key, other = random.sample(range(ROWS + 50), 2)
        if {key, other} & taken:
            return
        if not mine:
            execute(self._connection, "BEGIN")
        mine.update((key, other))
        match random.randrange(4):
            case 0:
                sql = f"DELETE FROM stock WHERE id = {key}"
            case 1:
                sql = f"DELETE FROM stock WHERE id = {other}; UPDATE stock SET id = {other} WHERE id = {key}"
            case _:
                sql = f"INSERT INTO stock VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = {value}"
        execute(self._connection, sql)

    def end(self) -> None:
        if self._locked[self]:
            execute(self._connection, "ROLLBACK" if self._random.random() < 0.1 else "COMMIT")
            self._locked[self].clear()

    def close(self) -> None:
        self._connection.close()


Log = dict[int, list[tuple[str, int | None]]]
"""The changes of each row: their operations and the values after them."""


def read_log(broker: LocalBroker) -> Log:
    """What the topic has, without tombstones."""
    found: Log = defaultdict(list)
    for each in read_records(broker, TOPIC):
        value: dict[str, Any] | None = each["value"] and json.loads(each["value"])
        if value is not None:
            after = value["after"]
            found[json.loads(each["key"])["id"]].append((value["op"], after and after["v"]))
    return found


def check_row(log: list[tuple[str, int | None]], history: list[tuple[str, int | None]], first: int | None) -> None:
    """The log of a row is what it was at some moment, and everything that happened to it since then, once."""
    states = [first, *(value for _, value in history)]
    is_read = bool(log) and log[0][0] == "r"
    changes = log[1:] if is_read else log
    begin = len(history) - len(changes)
    assert begin >= 0, (log, history)
    assert changes == history[begin:], (log, history)
    assert states[begin] == (log[0][1] if is_read else None), (log, history)


def run_with_kills(broker: LocalBroker, database: Database, directory: Path, kills: int, seed: int) -> None:
    random = Random(seed)
    converter = "org.apache.kafka.connect.json.JsonConverter"
    config = database.make_config(table_include_list="public.stock")
    for part in ("key", "value"):
        config |= {f"{part}.converter": converter, f"{part}.converter.schemas.enable": "false"}
    (directory / "config.json").write_text(json.dumps(config))
    fill(database)
    broker.create_topic(TOPIC, partitions=1)
    client = Client({"bootstrap.servers": broker.bootstrap})
    locked: dict[Writer, set[int]] = {}
    writers = [Writer(database.server, random, locked) for _ in range(2)]
    driver = Driver(broker, directory, "tests.connect.capturing")
    values = iter(range(1, 1_000_000))

    def find_end() -> int:
        driver.check()
        where = TopicPartition(TOPIC, 0)
        return client.list_offsets({where: LATEST}, READ_COMMITTED)[where].offset

    def write_until(wanted: int, limit: Iterator[int]) -> bool:
        """The writers wait for the capture once they have done their share, or it would never catch up."""
        is_done = next(limit, None) is None
        for writer in writers:
            writer.end() if is_done else writer.step(next(values))
        return find_end() >= wanted

    try:
        driver.start()
        for number in range(kills):
            wanted, limit = find_end() + random.randrange(1, STEPS // 2), iter(range(STEPS))
            wait_until(lambda wanted=wanted, limit=limit: write_until(wanted, limit), driver.read_log)  # type: ignore[misc]
            if number % 2:
                driver.kill_worker(random)
            else:
                driver.kill()
                driver.start()
        for writer in writers:
            writer.end()
        # The first may be among the rows that are read before the log; the second is at the end of the log.
        database.run(f"INSERT INTO stock VALUES ({LAST_ID}, 0)")
        wait_until(lambda: find_end() > 0 and LAST_ID in read_log(broker), driver.read_log)
        database.run(f"UPDATE stock SET v = 1 WHERE id = {LAST_ID}")
        wait_until(lambda: find_end() > 0 and ("u", 1) in read_log(broker)[LAST_ID], driver.read_log)
    finally:
        driver.kill()
        client.close()
        for writer in writers:
            writer.close()
    check_all(read_log(broker), database)


def fill(database: Database) -> None:
    database.run(HISTORY, f"INSERT INTO stock SELECT n, -n FROM generate_series(0, {ROWS - 1}) n", "TRUNCATE history")


def check_all(log: Log, database: Database) -> None:
    history: Log = defaultdict(list)
    with closing(connect(database.server)) as connection:
        for row in query_rows(connection, "SELECT op, id, v FROM history ORDER BY seq"):
            history[row["id"]].append((row["op"], row["v"]))
        rows = {row["id"]: row["v"] for row in query_rows(connection, "SELECT id, v FROM stock")}
    for key in {*log, *history, *range(ROWS)}:
        check_row(log[key], history[key], -key if key < ROWS else None)
    assert {key: changes[-1][1] for key, changes in log.items() if changes and changes[-1][1] is not None} == rows


@pytest.fixture
def database() -> Iterator[Database]:
    with postgresql() as running:
        yield running


def test_rounds_that_are_lost(database: Database, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Without a worker: some rounds are not committed and the capture starts anew, or the slot stays behind."""
    for module, sizes in SIZES:
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)
    random = Random(seed)
    fill(database)
    locked: dict[Writer, set[int]] = {}
    writers = [Writer(database.server, random, locked) for _ in range(2)]
    values = iter(range(1, 1_000_000))
    capture = database.capture(table_include_list="public.stock")
    capture.source.plan({})  # creates the slot, for which it waits for open transactions
    for _ in range(25):
        before = dict(capture.offsets), capture.records[:]
        for part in capture.source.plan(dict(capture.offsets)):
            for _ in range(random.randrange(8)):
                random.choice(writers).step(next(values))
            capture.read(part, random.choice([1, 2, 5, None]))
        if random.random() < 0.25:
            capture = database.capture(table_include_list="public.stock")
            capture.offsets, capture.records = before
        elif random.random() < 0.8:
            capture.source.after_commit(dict(capture.offsets))
    for writer in writers:
        writer.end()
        writer.close()
    capture.run()
    log: Log = defaultdict(list)
    for each in capture.records:
        if each.value is not None:
            after = each.value["after"]
            log[each.key["id"]].append((each.value["op"], after and after["v"]))
    check_all(log, database)


@pytest.mark.long
def test_kills(ottla_broker: LocalBroker, database: Database, tmp_path: Path, seed: int) -> None:
    """Of the driver and of Python workers, in turns."""
    run_with_kills(ottla_broker, database, tmp_path, KILLS, seed)
