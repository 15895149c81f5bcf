"""What Kafka Streams has and Ottla does not have yet. Whoever asks for it gets one line with what to do instead."""

from typing import Any, Final, NoReturn

from ottla.streams.errors import TopologyError

SLIDING_WINDOWS: Final = "sliding windows"
COGROUP: Final = "cogroup"
VERSIONED_TABLES: Final = "versioned tables"
AS_OF_JOINS: Final = "as-of joins"
OUTER_STREAM_JOINS: Final = "outer joins of two streams"
GLOBAL_TABLES: Final = "global tables"
WALL_CLOCK_TIMERS: Final = "wall-clock timers"
LIST_STATE: Final = "list state"
STANDBYS: Final = "standbys"
AT_LEAST_ONCE: Final = "at-least-once"
OTHER_CLUSTERS: Final = "YARN and Kubernetes"
WINDOWS_OVER_TABLES: Final = "windows over a table's updates"

_INSTEAD: Final = {
    SLIDING_WINDOWS: "use hopping(size, advance) with a small advance",
    COGROUP: "aggregate each stream by itself and join the tables",
    VERSIONED_TABLES: "a table has the newest value of each key; join with that",
    AS_OF_JOINS: "a join sees the newest value of a table; to match by time, join two streams within a window",
    OUTER_STREAM_JOINS: "use how='left', and a second left join the other way round",
    GLOBAL_TABLES: "use app.table(...) and join with on=, which brings the rows to the table's partitions",
    WALL_CLOCK_TIMERS: "use context.timer(name, when), which goes by event time",
    LIST_STATE: "use MapState with a number as key, or ValueState of an array type",
    STANDBYS: "state is restored from its changelog; keep state_dir on a disk that survives a restart",
    OTHER_CLUSTERS: "use a standalone cluster, master='spark://host:7077', or master='local[*]'",
    AT_LEAST_ONCE: "leave guarantee= out, everything is exactly-once",
    WINDOWS_OVER_TABLES: "how often a table changes depends on how its input is cut into batches; window the stream "
    "that the table is made of, or make the table with emit='final'",
}


def refuse(feature: str, operator: str = "") -> NoReturn:
    """TopologyError that says that the feature is not there yet, and what to use instead."""
    where = f"{operator}: " if operator else ""
    raise TopologyError(f"{where}{feature}: not supported yet ({_INSTEAD[feature]})")


def sliding(*_: Any, **__: Any) -> NoReturn:
    """Kafka Streams' SlidingWindows."""
    refuse(SLIDING_WINDOWS, "sliding")


class ListState:
    """A list in the state of a Processor."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse(LIST_STATE, "ListState")
