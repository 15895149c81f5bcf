"""A table of Delta Lake. Rows are committed together with the position that they end at.

The position is an application transaction (`txn`) of the table's log: its app id names the connector, the topic and the
partition, its version is the next offset. Of two writers with the same app id whose commits overlap, one is refused.

deltalake is imported where a table is used, so that everything else works without it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.definition import Password

FORGOTTEN: Final = -1
"""The version of a position that was forgotten: a log cannot take one back."""


@dataclass(frozen=True)
class Storage:
    """How to reach the store of the tables. It is pickled with the connector."""

    options: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, Password], ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, str] | None:
        return {**dict(self.options), **{name: str(text) for name, text in self.secrets}} or None


class Table:
    """A table as it was when it was opened."""

    def __init__(self, uri: str, storage: Storage) -> None:
        """RetriableError if its store cannot be reached."""
        deltalake = _import()
        self.uri = uri
        self._storage = storage.to_dict()
        self._table: Any = None
        try:
            self._table = deltalake.DeltaTable(uri, storage_options=self._storage)
        except deltalake.exceptions.TableNotFoundError:
            return
        except Exception as error:  # deltalake raises plain ones too
            raise _explain(uri, error) from None

    @property
    def exists(self) -> bool:
        return self._table is not None

    @property
    def schema(self) -> pa.Schema:
        """Empty if there is no table yet."""
        return pa.schema(self._table.schema().to_arrow()) if self.exists else pa.schema([])

    @property
    def partition_columns(self) -> list[str]:
        return list(self._table.metadata().partition_columns) if self.exists else []

    def find_position(self, app_id: str) -> int | None:
        found = self._table.transaction_version(app_id) if self.exists else None
        return None if found is None or found <= FORGOTTEN else int(found)

    def append(self, rows: pa.Table, app_id: str, position: int, partition_by: list[str]) -> None:
        """One commit. RetriableError if somebody else has moved the position meanwhile, or the store is away."""
        deltalake = _import()
        commit = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app_id, position)])
        try:
            deltalake.write_deltalake(
                self.uri if self._table is None else self._table,
                rows,
                mode="append",
                schema_mode="merge",
                partition_by=partition_by or None,
                storage_options=self._storage,
                commit_properties=commit,
            )
        except Exception as error:
            raise _explain(self.uri, error) from None

    def move(self, app_id: str, position: int | None) -> None:
        """Set a position without any rows."""
        if self.exists:
            version = FORGOTTEN if position is None else position
            self.append(self.schema.empty_table(), app_id, version, self.partition_columns)


def _import() -> Any:
    try:
        import deltalake
    except ImportError:
        raise BadConfig("the Delta Lake sink needs deltalake: pip install 'ottla[connect]'") from None
    return deltalake


_LASTING: Final = ("cast", "schema", "permission", "denied", "forbidden", "invalid", "unsupported", "not supported")


def _explain(uri: str, error: Exception) -> ConnectError:
    """What a failure means. A conflict of two commits, and a store that is away, are tried again."""
    deltalake = _import()
    text = " ".join(str(error).partition("\n")[0].split())[:500]
    message = f"{uri}: {text}"
    if isinstance(error, deltalake.exceptions.CommitFailedError):
        return RetriableError(f"{message}; another writer was faster")
    if isinstance(error, deltalake.exceptions.SchemaMismatchError | deltalake.exceptions.DeltaProtocolError):
        return ConnectError(message)
    if any(word in text.lower() for word in _LASTING):
        return ConnectError(message)
    return RetriableError(message)


def make_storage(config: Mapping[str, Any]) -> Storage:
    """From the settings, which are named as those of the S3 connectors are."""
    options = {"AWS_REGION": config["s3.region"], "AWS_ENDPOINT_URL": config["store.url"]}
    if (config["store.url"] or "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    secrets = {
        "AWS_ACCESS_KEY_ID": config["aws.access.key.id"],
        "AWS_SECRET_ACCESS_KEY": config["aws.secret.access.key"],
    }
    return Storage(
        tuple((name, str(text)) for name, text in options.items() if text),
        tuple((name, Password(text)) for name, text in secrets.items() if text),
    )
