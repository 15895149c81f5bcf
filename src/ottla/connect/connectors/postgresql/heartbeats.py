"""The records of __debezium-heartbeat.<prefix>, which show that a capture without changes is alive."""

from typing import Final

from ottla.connect.data.record import Record
from ottla.connect.data.schema import Field, Schema, Type

_KEY: Final = Schema(
    Type.STRUCT,
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
    fields=(Field("serverName", Schema(Type.STRING)),),
)
_VALUE: Final = Schema(
    Type.STRUCT,
    name="io.debezium.connector.common.Heartbeat",
    version=1,
    fields=(Field("ts_ms", Schema(Type.INT64)),),
)


def make_heartbeat(prefix: str, now_ms: int) -> Record:
    return Record(f"__debezium-heartbeat.{prefix}", {"ts_ms": now_ms}, _VALUE, {"serverName": prefix}, _KEY)
