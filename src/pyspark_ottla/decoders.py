"""Builds the formats of keys and values from the options, once per query, in the driver.

Only here a schema registry is asked, a schema file is read or a topic is sampled. The formats are sent to the tasks, so
all tasks of a query decode alike.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.pipeline.formats import Format
from ottla.pipeline.formats.choice import choose_format
from ottla.pipeline.formats.inference import infer_type
from ottla.pipeline.registry import Registry, RegistryError
from pyspark_ottla.boundaries import OptionError
from pyspark_ottla.column_options import INFER, ColumnFormat, ColumnOptions

if TYPE_CHECKING:
    import pyarrow

FILE = "@"
SCHEMA_BYTES_MAX = 16 * 1024 * 1024

Sample = Callable[[str], list[bytes]]
"""Returns some values of a column (key or value)."""


def choose_formats(
    options: ColumnOptions, sample: Sample, types: "Mapping[str, pyarrow.DataType | None]"
) -> dict[str, Format]:
    """The formats by column. `types` are those of the user's own schema, for JSON without a schema option.

    Raises OptionError if a schema is missing or invalid.
    """
    registry = _make_registry(options)
    found = {}
    for form in options.formats:
        try:
            schema = _find_schema(form, sample)
            if schema is None and form.name == "json" and registry is None:
                schema = types.get(form.column)
            if schema is None and form.name != "string" and registry is None:
                raise OptionError(_explain_missing(form))
            found[form.column] = choose_format(
                form.name, schema=schema, message=form.message, registry=registry, subject=form.subject
            )
        except RegistryError as error:
            raise OptionError(f"schemaRegistry: {error}") from None
        except OptionError:
            raise
        except ValueError as error:
            named = "Schema" if form.schema is not None else "Format"
            raise OptionError(f"{form.option(named)}: {error}") from None
    return found


def _explain_missing(form: ColumnFormat) -> str:
    either = ", or 'infer' to take it from the newest records" if form.name == "json" else ""
    return f"{form.option('Schema')}: {form.name} needs a schema{either}, or a schemaRegistry"


def _make_registry(options: ColumnOptions) -> Registry | None:
    if options.registry is None:
        return None
    try:
        return Registry(options.registry)
    except ValueError as error:
        raise OptionError(f"schemaRegistry: {error}") from None


def _find_schema(form: ColumnFormat, sample: Sample) -> "pyarrow.DataType | str | bytes | None":
    if form.schema is None:
        return None
    if form.schema == INFER:
        return infer_type(sample(form.column))
    if not form.schema.startswith(FILE):
        return form.schema
    content = _read_content(form.schema.removeprefix(FILE))
    if form.name == "protobuf":
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{form.schema.removeprefix(FILE)} is not a text file") from None


def _read_content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            found = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    if len(found) > SCHEMA_BYTES_MAX:
        raise ValueError(f"{path}: larger than {SCHEMA_BYTES_MAX} bytes, which no schema is")
    return found
