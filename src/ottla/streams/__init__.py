"""Kafka Streams' semantics for Python and PySpark: state in topics and RocksDB, exactly once, on Spark.

    from pyspark.sql import functions as F
    from ottla.streams import App

    app = App("shop", bootstrap="localhost:9092")
    words = app.stream("lines", value="string").select(F.explode(F.split("value", " ")).alias("word"))
    words.group_by("word").count(name="word-counts").to("counts")
    app.run()

What the user writes:
app.py            App: sources, settings, running it             options.py   the settings of an app, checked
stream.py         Stream                                         table.py     Table
grouped.py        groups of both, and their aggregates           relation.py  what streams and tables have in common
aggregations.py   Spark's aggregates, taken apart                columns.py   Columns, checked by Spark's analyser
keys.py           which columns make the key                     topics.py    sources, sinks and their formats
topology.py       names, labels and sources of an app            joins.py     which columns a join has
describing.py     a topology as a picture                        later.py     what is refused by name
processors.py     Processor, its states and timers               calls.py     arguments and functions, checked
windows.py        windows over event time                        errors.py    errors of one line

What is made of it:
graph.py      the logical topology: nodes that know their inputs    rows.py      rows between steps
formats.py    keys and values of records                            parcels.py   many rows as one record
record_format.py, format_codecs.py, json_format.py                  what formats.py makes, and how it reads and writes
planning/     the physical plan: subtopologies connected by topics
tasks/        one batch of one partition: records to rows, steps, rows to records
testing.py    the test driver: an app in memory                     memory_topics.py, computed_columns.py   its parts
kernels/      stateful steps: rows and old state in, rows and new state out
state/        stores, their keys and values, and the servers that keep them
queries.py    asks a running app for rows of its stores
running/      the driver and its tasks on Spark
"""

from typing import TYPE_CHECKING, Any

from ottla.streams.errors import FencedApp, FunctionFailed, IncompatibleTopology, StreamsError, TopologyError
from ottla.streams.later import ListState, sliding
from ottla.streams.windows import hopping, session, tumbling

if TYPE_CHECKING:
    from ottla.streams.app import App
    from ottla.streams.processors import Context, Emit, MapState, Processor, Timer, ValueState
    from ottla.streams.stream import Stream
    from ottla.streams.table import Table

__all__ = [
    "App",
    "Context",
    "Emit",
    "FencedApp",
    "FunctionFailed",
    "IncompatibleTopology",
    "ListState",
    "MapState",
    "Processor",
    "Stream",
    "StreamsError",
    "Table",
    "Timer",
    "TopologyError",
    "ValueState",
    "hopping",
    "session",
    "sliding",
    "tumbling",
]

_HOMES = {"App": "app", "Stream": "stream", "Table": "table"} | dict.fromkeys(
    ("Context", "Emit", "MapState", "Processor", "Timer", "ValueState"), "processors"
)


def __getattr__(name: str) -> Any:
    """PySpark takes a second to import, and tasks import this package: only when something is used."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"ottla.streams.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
