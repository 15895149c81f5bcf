"""A shop whose database is copied while parts of the pipeline are killed and paused.

    PostgreSQL -> change capture -> topics -> sink  -> the schema `copy` of the same database
                                           -> join in Streams -> topic -> sink -> the same schema

The parts are processes: PostgreSQL, a broker, a worker of Connect with its JVM and Python workers, and the app of
`joining.py`. Each kind of fault hits one of them.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import psutil

from benchmarks.peers.postgresql import PostgreSqlServer
from ottla.connect.errors import ConnectError
from ottla.testing import LocalBroker
from tests.connect.jdbc_databases import Database, create_database
from tests.connect.joining import JOINED, ORDERS, PAYMENTS
from tests.connect.workers import WorkerProcess
from tests.patience import PATIENCE_S
from tests.spark.killing import signal_quietly
from tests.streams.driver_process import DriverProcess

TABLES: Final = """
CREATE TABLE orders (id int PRIMARY KEY, item text, amount int);
CREATE TABLE payments (id int PRIMARY KEY, paid int);
CREATE SCHEMA copy;
CREATE TABLE copy.orders (LIKE orders INCLUDING ALL);
CREATE TABLE copy.payments (LIKE payments INCLUDING ALL);
CREATE TABLE copy.paid (id int PRIMARY KEY, item text, amount int, paid int);
"""
COPIES: Final = {
    "orders": ("TABLE orders", "TABLE copy.orders"),
    "payments": ("TABLE payments", "TABLE copy.payments"),
    "paid": ("SELECT id, item, amount, paid FROM orders JOIN payments USING (id)", "TABLE copy.paid"),
}
"""What must be equal in the end."""
IDS: Final = 2_000
BIG_ID: Final = 1_000_000
"""The rows of the big transaction begin here."""
PAUSE_S: Final = 3.0
GROUP: Final = "shop-workers"

WORKER, PYTHON, PAUSED_WORKER, APP, BROKER, DATABASE, PAUSED_DATABASE = KINDS = (
    "worker",
    "Python worker",
    "paused worker",
    "app",
    "broker",
    "database",
    "paused database",
)


class Shop:
    def __init__(self, directory: Path, server: PostgreSqlServer, broker: LocalBroker, random: Random) -> None:
        self._directory = directory
        self._server = server
        self._broker = broker
        self._random = random
        self._database: Database = create_database(server, "shop")
        self._app = DriverProcess("tests.connect.joining", directory, broker.bootstrap, str(directory / "state"))
        self._workers = 0
        self._value = 0
        self.memory_max = 0
        """The most bytes that the processes of the worker had together, as far as it was looked at."""
        for topic in (ORDERS, PAYMENTS, JOINED):
            broker.create_topic(topic, partitions=2, cleanup_policy="compact")
        for statement in filter(str.strip, TABLES.split(";")):
            self._database.run(statement)
        self._worker = self._start_worker()
        self._app.start()
        for name, config in self._list_connectors().items():
            status, answer = self._worker.ask("PUT", f"/connectors/{name}/config", config)
            assert status == 201, answer

    def close(self) -> None:
        self._app.kill()
        self._worker.close()

    # Parts

    def _start_worker(self) -> WorkerProcess:
        self._workers += 1
        worker = WorkerProcess(self._broker.bootstrap, self._directory, GROUP, f"worker-{self._workers}")
        worker.wait_until_ready()
        return worker

    def _list_connectors(self) -> dict[str, dict[str, str]]:
        converters = {
            "key.converter": "org.apache.kafka.connect.converters.IntegerConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
        }
        sink = {
            "connector.class": "JdbcSink",
            "connection.url": f"jdbc:postgresql://127.0.0.1:{self._server.port}/shop",
            "connection.user": "postgres",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "pk.fields": "id",
            "delete.enabled": "true",
            "table.name.format": "copy.${topic}",
            **converters,
        }
        capture = {
            "connector.class": "PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": "postgres",
            "database.dbname": "shop",
            "topic.prefix": "shop",
            "table.include.list": "public.orders,public.payments",
            "publication.autocreate.mode": "filtered",
            "transforms": "plain,key",
            "transforms.plain.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.plain.drop.tombstones": "false",
            "transforms.key.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
            "transforms.key.field": "id",
            **converters,
        }
        names = {
            "transforms": "name",
            "transforms.name.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.name.regex": r"shop\.public\.(.*)",
            "transforms.name.replacement": "$1",
        }
        return {
            "capture": capture,
            "copies": {**sink, **names, "topics": f"{ORDERS},{PAYMENTS}", "tasks.max": "2"},
            "paid": {**sink, "topics": JOINED},
        }

    # Work

    def change(self, transactions: int) -> None:
        """Inserts, updates and deletes, a few in each transaction."""
        for _ in range(transactions):
            self._run(" ".join(self._make_change() for _ in range(self._random.randrange(1, 6))))

    def change_many(self, rows: int) -> None:
        """One transaction that inserts so many rows, changes a part of them, and pays for a few."""
        ids = f"generate_series({BIG_ID}, {BIG_ID + rows - 1}) id"
        self._run(
            f"INSERT INTO orders SELECT id, 'big', id FROM {ids};"
            f"UPDATE orders SET amount = 0 WHERE id >= {BIG_ID} AND id % 10 = 0;"
            f"INSERT INTO payments SELECT id, id FROM {ids} WHERE id % 100 = 0;"
        )

    def _make_change(self) -> str:
        self._value += 1
        key, value, random = self._random.randrange(IDS), self._value, self._random
        match random.randrange(5):
            case 0:
                return f"DELETE FROM orders WHERE id = {key};"
            case 1:
                return f"DELETE FROM payments WHERE id = {key};"
            case 2:
                return f"INSERT INTO payments VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET paid = {value};"
            case _:
                return (
                    f"INSERT INTO orders VALUES ({key}, 'item {value}', {value}) "
                    f"ON CONFLICT (id) DO UPDATE SET amount = {value};"
                )

    def _run(self, sql: str) -> None:
        """Until it is committed. The server may go away in the middle, and then nobody knows whether it is."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._database.run(f"DO $$ BEGIN {sql.replace(chr(36) * 2, '')} END $$")
                return
            except ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def find_differences(self) -> dict[str, int]:
        """How many rows each copy has too many or too few."""
        found = {}
        for name, (source, copy) in COPIES.items():
            both = f"(({source}) EXCEPT ({copy})) UNION ALL (({copy}) EXCEPT ({source}))"
            ((found[name],),) = self._database.query(f"SELECT count(*) FROM ({both}) AS different")
        return {name: count for name, count in found.items() if count}

    def look(self) -> dict[str, int]:
        """The differences. Also notes the memory."""
        found = 0
        for each in psutil.process_iter():
            try:
                if os.getpgid(each.pid) == self._worker.process.pid:
                    found += each.memory_info().rss
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        self.memory_max = max(self.memory_max, found)
        return self.find_differences()

    def explain(self) -> str:
        """What is known about a pipeline that does not come to its end."""
        status = self._worker.ask("GET", "/connectors?expand=status")[1]
        log = (self._directory / "driver.log").read_text()[-2000:]
        return f"{self.find_differences()} {status} {self._worker.log.read_text()[-2000:]} {log}"

    # Faults

    def hit(self, kind: str) -> None:
        faults: dict[str, Callable[[], None]] = {
            WORKER: self._kill_worker,
            PYTHON: self._kill_python,
            PAUSED_WORKER: self._pause_worker,
            APP: self._kill_app,
            BROKER: self._kill_broker,
            DATABASE: self._crash_database,
            PAUSED_DATABASE: self._pause_database,
        }
        faults[kind]()

    def _kill_worker(self) -> None:
        self._worker.close()
        self._worker = self._start_worker()

    def _kill_python(self) -> None:
        found = []
        for each in psutil.Process(self._worker.process.pid).children(recursive=True):
            try:
                parent = each.parent()
                if parent is not None and "ottla.connect.running.daemon" in parent.cmdline():
                    found.append(each)
            except psutil.NoSuchProcess:
                continue
        if found:
            signal_quietly(self._random.choice(found))

    def _pause_worker(self) -> None:
        self._worker.signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        self._worker.signal(signal.SIGCONT)

    def _kill_app(self) -> None:
        self._app.kill()
        self._app.start()

    def _kill_broker(self) -> None:
        self._broker.kill()
        self._broker.restart()

    def _crash_database(self) -> None:
        self._server.stop()
        self._server.start()

    def _pause_database(self) -> None:
        with_children = [self._server.process, *self._server.process.children(recursive=True)]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for each in with_children:
                signal_quietly(each, number)
            if number == signal.SIGSTOP:
                time.sleep(PAUSE_S)
