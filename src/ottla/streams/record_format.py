"""The format of a key or a value, as the graph and the plan carry it. `formats.py` makes one of what the user says."""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

CANONICAL_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
CANONICAL = tuple(CANONICAL_TYPES)
KINDS = (*CANONICAL, "json", "avro", "protobuf")


@dataclass(frozen=True)
class RecordFormat:
    """The format of a key or a value. Small and picklable: schemas of a registry are resolved when an app is built."""

    kind: str = "binary"
    schema: str | bytes | None = None
    """The text of a schema for avro and of a JSON Schema for json, if there is one; a descriptor set for protobuf."""
    message: str = ""
    """The message of a descriptor set."""
    registry: str | None = None
    """The address of a schema registry: values carry the id of their schema."""
    subject: str = ""
    type: pa.DataType | None = None
    """The type of the decoded value: a struct, whose fields become columns, or one value."""
    schema_id: int | None = None
    """With a registry: the id of the schema that values are written with."""
    registry_user: str = ""
    """name:password, if the registry wants it."""
    registry_token: str = ""

    @property
    def is_canonical(self) -> bool:
        return self.kind in CANONICAL

    @property
    def resolved_type(self) -> pa.DataType:
        if self.type is None:
            raise ValueError(f"{self.kind} has no type yet; `formats.resolve` finds it")
        return self.type

    @property
    def registry_settings(self) -> dict[str, str]:
        """The settings of the registry's client."""
        found = {"schema.registry.url": self.registry or ""}
        if self.registry_user:
            found["basic.auth.user.info"] = self.registry_user
        if self.registry_token:
            found["bearer.auth.token"] = self.registry_token
        return found
