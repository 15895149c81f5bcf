"""A data source that is written in Python (`pyspark.sql.datasource.DataSource`): its class, options and schema.

It is used as Spark uses it: the driver asks for offsets and partitions, tasks read or write. A data source that is
written in Java or Scala cannot be used: its rows are not in Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.connect.connectors.spark.schema_text import parse_schema
from ottla.connect.errors import BadConfig, ConnectError, RetriableError
from ottla.connect.settings.checks import non_empty
from ottla.connect.settings.definition import REQUIRED, Importance, Kind, Setting

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

CLASS: Final = "data.source"
OPTION: Final = "data.source.option."
"""Before the names of options."""
BATCH_ROWS: Final = 10_000

COMMON_SETTINGS: Final = (
    Setting(
        CLASS,
        Kind.STRING,
        REQUIRED,
        "The data source: `package.module:Class`, or a package `pyspark_...` that Spark finds by its name. Its options"
        f" are settings that begin with {OPTION}.",
        Importance.HIGH,
        non_empty,
    ),
)

Made = TypeVar("Made")


def make_data_source(config: Mapping[str, Any]) -> "DataSource":
    """BadConfig if there is no such class, or if it does not take its options."""
    found = _find_class(config[CLASS])
    given = {name.removeprefix(OPTION): text for name, text in config.items() if name.startswith(OPTION)}
    from pyspark.sql.datasource import CaseInsensitiveDict

    try:
        return found(CaseInsensitiveDict(given))
    except Exception as error:
        raise BadConfig(f"{CLASS}={config[CLASS]} does not take its options: {_tell(error)}") from error


def refuse(config: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """What is wrong with the settings: there is no such data source, or it does not take its options."""
    try:
        make_data_source(config)
    except BadConfig as error:
        return {CLASS: [str(error)]}
    return {}


def _find_class(name: str) -> "type[DataSource]":
    from pyspark.sql.datasource import DataSource

    module, _, class_name = name.partition(":")
    try:
        found = getattr(import_module(module), class_name or "DefaultSource", None)
    except ImportError as error:
        raise BadConfig(f"{CLASS}={name} cannot be imported: {error}") from None
    if not isinstance(found, type) or not issubclass(found, DataSource):
        raise BadConfig(f"{CLASS}={name} is no data source of PySpark (a class derived from DataSource)")
    return found


def find_schema(source: "DataSource", wanted: str | None) -> "StructType":
    """What the user wants, or what the data source says."""
    found = wanted or ask(source.schema)
    if found is None:
        raise ConnectError("the data source does not say its schema: give it in data.source.schema")
    return parse_schema(found) if isinstance(found, str) else found


def ask(method: Callable[..., Made], *arguments: Any) -> Made | None:
    """What a method returns; None if the data source does not have it."""
    from pyspark.errors import PySparkNotImplementedError

    try:
        return method(*arguments)
    except (PySparkNotImplementedError, NotImplementedError):
        return None


@contextmanager
def explain_absence() -> Iterator[None]:
    """An error of the network or a file, whatever the data source uses, may pass: RetriableError."""
    try:
        yield
    except OSError as error:
        raise RetriableError(f"the data source is away: {_tell(error)}") from error


def read_batches(source: "DataSource", schema: "StructType", rows: Iterator[Any]) -> Iterator[Any]:
    """Rows that a reader returns, as Arrow batches; it may return those itself."""
    from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches

    yield from records_to_arrow_batches(rows, BATCH_ROWS, schema, source)


def _tell(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
