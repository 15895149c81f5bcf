"""What Kafka Streams has and Ottla does not have yet. Whoever asks for it gets one line with what to do instead."""

from typing import NoReturn

from ottla.streams.errors import TopologyError

_INSTEAD = {
    "sliding windows": "use hopping(size, advance) with a small advance",
    "cogroup": "aggregate each stream by itself and join the tables",
    "versioned tables": "a table has the newest value of each key; join with that",
    "as-of joins": "a join sees the newest value of the table; join two streams within a window instead",
    "outer stream-stream joins": "use how='left', and a second left join the other way round",
    "global tables": "use app.table(...) and join with on=, which brings the rows to the table's partitions",
    "wall-clock timers": "use event-time timers, with close_idle if the input may pause",
    "list state": "use MapState with a counter as key, or ValueState of an array type",
    "standbys": "state is restored from its changelog; keep state_dir on a disk that survives restarts",
    "at-least-once": "leave guarantee= out, everything is exactly-once",
    "windows over a table's updates": "how often a table changes depends on how its input is cut into batches; "
    "window the stream that the table is made from, or use emit='final' there",
}


def refuse(feature: str, operator: str = "") -> NoReturn:
    """TopologyError that says that `feature` is not there yet, and what to use instead."""
    where = f"{operator}: " if operator else ""
    raise TopologyError(f"{where}{feature}: not supported yet ({_INSTEAD[feature]})")
