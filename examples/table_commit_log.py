"""Commit log of a database table: every change of a row is a record, and a replica follows, exactly once.

    python examples/table_commit_log.py [--bootstrap HOST:PORT]

Triggers write down what changes in a table of SQLite, in the same transaction as the change; a shipper sends that to a
compacted topic, keyed by the row's key. A Spark query applies it to another database. Each batch and its number are one
transaction there, so a batch that Spark repeats is known, and passed over.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from stage import COMPACTED, Record, create_topics, run, send, stream

CHANGES = "stock.changes"
SCHEMA = """
CREATE TABLE stock (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL, place TEXT NOT NULL);
CREATE TABLE changes (number INTEGER PRIMARY KEY, article TEXT, image TEXT);
CREATE TRIGGER added AFTER INSERT ON stock BEGIN
    INSERT INTO changes (article, image) VALUES (new.article, json_object('pieces', new.pieces, 'place', new.place));
END;
CREATE TRIGGER altered AFTER UPDATE ON stock BEGIN
    INSERT INTO changes (article, image) VALUES (new.article, json_object('pieces', new.pieces, 'place', new.place));
END;
CREATE TRIGGER removed AFTER DELETE ON stock BEGIN
    INSERT INTO changes (article, image) VALUES (old.article, NULL);
END;
"""
REPLICA_SCHEMA = """
CREATE TABLE stock (article TEXT PRIMARY KEY, pieces INTEGER NOT NULL, place TEXT NOT NULL);
CREATE TABLE applied (batch INTEGER PRIMARY KEY);
"""
ARRIVAL = "INSERT INTO stock VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pieces = pieces + excluded.pieces"
DAYS = 3
CHANGES_A_DAY = 150


def main(spark: SparkSession, bootstrap: str) -> None:
    create_topics(bootstrap, CHANGES, settings=COMPACTED)
    random = Random(6)
    with TemporaryDirectory() as directory:
        original, replica = Path(directory, "original.db"), Path(directory, "replica.db")
        build(original, SCHEMA)
        build(replica, REPLICA_SCHEMA)
        shipped = 0
        for _ in range(DAYS):
            work_for_a_day(original, random)
            changes = changes_after(original, shipped)
            send(bootstrap, CHANGES, changes)
            shipped += len(changes)
            follow(stream(spark, bootstrap, CHANGES), replica, f"{directory}/checkpoint")
            assert rows_of(replica) == rows_of(original), "the replica differs from the table"
        print(f"{shipped} changes on {DAYS} days; the replica has the same {len(rows_of(replica))} rows as the table.")


def follow(changes: DataFrame, replica: Path, checkpoint: str) -> None:
    """Apply what is new. This runs in the driver: a table with so few changes needs no more."""

    def apply(frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("string(key) AS key", "string(value) AS value", "partition", "offset").collect()
        with closing(sqlite3.connect(replica)) as database, database:
            if database.execute("INSERT OR IGNORE INTO applied VALUES (?)", [batch]).rowcount == 0:
                return
            for row in sorted(rows, key=lambda row: (row.partition, row.offset)):  # a key is always in one partition
                if row.value is None:
                    database.execute("DELETE FROM stock WHERE article = ?", [row.key])
                else:
                    image = json.loads(row.value)
                    values = [row.key, image["pieces"], image["place"]]
                    database.execute("INSERT OR REPLACE INTO stock VALUES (?, ?, ?)", values)

    query = changes.writeStream.foreachBatch(apply).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def build(path: Path, schema: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(schema)


def work_for_a_day(original: Path, random: Random) -> None:
    """Goods come, are moved, are sold out."""
    with closing(sqlite3.connect(original)) as database, database:
        for _ in range(CHANGES_A_DAY):
            article = f"article-{random.randrange(60)}"
            if random.random() < 0.25:
                database.execute("DELETE FROM stock WHERE article = ?", [article])
            else:
                database.execute(ARRIVAL, [article, random.randrange(1, 100), f"shelf {random.randrange(9)}"])


def changes_after(original: Path, number: int) -> list[Record]:
    """In the order in which they were committed. A tombstone, for a row that is gone."""
    with closing(sqlite3.connect(original)) as database:
        question = "SELECT article, image FROM changes WHERE number > ? ORDER BY number"
        return database.execute(question, [number]).fetchall()


def rows_of(path: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM stock ORDER BY article").fetchall()


if __name__ == "__main__":
    run(main, __doc__)
