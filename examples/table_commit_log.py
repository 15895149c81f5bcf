"""Commit log of a database table: every change of a row is a record, and a replica applies each change exactly once.

    python examples/table_commit_log.py [--bootstrap HOST:PORT]

Triggers in an SQLite database log each change of a table in the same transaction. The logged changes are sent to a
compacted topic with the row's key as the record's key. A Spark query applies them to another database. It stores each
batch and the batch's number in one transaction there, so a batch that Spark repeats is recognized and skipped.
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
        create_database(original, SCHEMA)
        create_database(replica, REPLICA_SCHEMA)
        shipped = 0
        for _ in range(DAYS):
            change_table(original, random)
            changes = read_changes_after(original, shipped)
            send(bootstrap, CHANGES, changes)
            shipped += len(changes)
            follow(stream(spark, bootstrap, CHANGES), replica, f"{directory}/checkpoint")
            assert read_rows(replica) == read_rows(original), "the replica differs from the table"
        print(
            f"{shipped} changes on {DAYS} days; the replica has the same {len(read_rows(replica))} rows as the table."
        )


def follow(changes: DataFrame, replica: Path, checkpoint: str) -> None:
    """Applies new changes to the replica. This runs in the driver, which is enough for so few changes."""

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


def create_database(path: Path, schema: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(schema)


def change_table(original: Path, random: Random) -> None:
    """Changes the table at random: articles arrive or are sold out."""
    with closing(sqlite3.connect(original)) as database, database:
        for _ in range(CHANGES_A_DAY):
            article = f"article-{random.randrange(60)}"
            if random.random() < 0.25:
                database.execute("DELETE FROM stock WHERE article = ?", [article])
            else:
                database.execute(ARRIVAL, [article, random.randrange(1, 100), f"shelf {random.randrange(9)}"])


def read_changes_after(original: Path, number: int) -> list[Record]:
    """The changes after `number`, in the order of their commits. A deleted row is a tombstone."""
    with closing(sqlite3.connect(original)) as database:
        query = "SELECT article, image FROM changes WHERE number > ? ORDER BY number"
        return database.execute(query, [number]).fetchall()


def read_rows(path: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM stock ORDER BY article").fetchall()


if __name__ == "__main__":
    run(main, __doc__)
