"""An event log in your own process: topics in a directory, without a server.

    with ottla.log.open("events") as log:
        orders = log.topic("orders")
        orders.append(b"ten apples", key=b"alice")
        for record in orders.read():
            print(record.offset, record.key, record.value)

The directory is a broker's: retention, compaction and recovery are a broker's too, and `ottla up --data events` serves
the same topics to every Kafka client later. One process at a time may have it open.

event_log.py  the log, and its topics
engine.py     a broker that listens on no port, in a thread
"""

import os
from collections.abc import Mapping

from ottla.errors import KafkaError
from ottla.log.engine import Engine, LogClosed
from ottla.log.event_log import EventLog, Topic
from ottla.records.record import Record
from ottla.storage.directories import DirectoryError

__all__ = ["DirectoryError", "EventLog", "KafkaError", "LogClosed", "Record", "Topic", "open"]


def open(directory: "os.PathLike[str] | str", settings: Mapping[str, str] | None = None) -> EventLog:
    """Open the log in a directory, which is created if it is missing.

    `settings` are a broker's, by Kafka's names. DirectoryError if another process has the directory open or it cannot
    be used.
    """
    return EventLog(Engine(os.fspath(directory), settings or {}))
