"""Columns of Spark over the rows of a topology: what the user writes is checked here, against the rows' schema.

An expression is a Column, or a text in SQL. Spark's analyser resolves it on an empty DataFrame with the same columns,
so a mistake is found where it is made, and the types of the result are Spark's.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from ottla.pipeline.formats.ddl import type_of_ddl
from ottla.spark.query_logs import silence_query_loggers
from ottla.streams.errors import TopologyError
from ottla.streams.rows import DELETED, HEADERS, OLD, RESERVED, TIMESTAMP, stream_schema, table_schema

if TYPE_CHECKING:
    from ottla.streams.graph import Node

Expression = Column | str
"""A Column, or its text in SQL such as "amount * 2 as double_amount"."""
Schema = str | StructType | Any
"""Columns and their types: fields in SQL syntax, a schema of Spark or of Arrow."""
Step = Callable[[DataFrame], DataFrame]

_STEPS: Final = frozenset({"Project", "Filter", "Generate", "LogicalRDD", "LocalRelation"})
"""Operators of Spark that work row by row."""
_OPERATORS: Final = frozenset({"Project", "Filter", "Generate"})
"""Those of them that are steps."""
_CLOCKS: Final = frozenset({"CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now"})
"""Expressions of Spark that are the time at which a plan is made."""
_NAME: Final = re.compile(r"[A-Za-z]\w*", re.ASCII)
_LITERALS: Final = frozenset({"true", "false", "null"})
_HEADERS: Final = "array<struct<key: string, value: binary>>"


class Item(NamedTuple):
    """One expression of a select."""

    column: Column
    plain_name: str | None
    """The name, if the expression is nothing but the name of a column."""


class Analyser:
    """Finds the schema of what a step makes of a node's rows."""

    def __init__(self, make_session: Callable[[], SparkSession]) -> None:
        self._make_session = make_session

    def analyse(self, label: str, node: "Node", step: Step) -> pa.Schema:
        """The user's columns after the step. TopologyError if Spark cannot resolve it or it is no step on rows."""
        with _one_line_errors(label, node.columns):
            result = step(self.empty_frame(node))
            plan = _analyse(result)
            operators = sorted(_operators_of(plan))
            unsteady = self._find_unsteady(plan)
        _check_operators(label, operators)
        if unsteady is not None:
            raise TopologyError(f"{label}: {unsteady}")
        made = [name for name in result.columns if name.startswith("_")]
        if foreign := [name for name in made if name not in RESERVED or made.count(name) > 1]:
            raise TopologyError(f"{label}: columns that begin with '_' are Ottla's; name {foreign[0]!r} otherwise")
        return user_columns(result.schema)

    def _find_unsteady(self, plan: Any) -> str | None:
        """What is wrong with a plan whose values do not follow from the rows: those of random numbers or of the clock.
        A plan is made once and runs for many batches, so Spark would choose them once for all."""
        patterns = _find_sql().catalyst.trees.TreePattern
        if plan.deterministic() and not plan.containsPattern(patterns.CURRENT_LIKE()):
            return None
        for expression in _expressions_of(plan):
            if kind_of(expression) in _CLOCKS:
                return (
                    f"{expression.prettyName()}() would be the time of the first batch in all batches; use the time of "
                    f"the rows, which time= of app.stream sets, or map(function, schema=...)"
                )
            if not expression.deterministic() and all(each.deterministic() for each in _list(expression.children())):
                name = expression.name() if kind_of(expression) == "PythonUDF" else expression.prettyName().lower()
                return (
                    f"{name}() does not follow from the row, and would repeat itself in each batch; compute it in "
                    f"Python, with map(function, schema=...)"
                )
        return None

    def analyse_aggregates(self, label: str, node: "Node", columns: Sequence[Column]) -> list[tuple[str, pa.DataType]]:
        """Names and types of aggregates over the node's rows."""
        with _one_line_errors(label, node.columns):
            fields = self.empty_frame(node).agg(*columns).schema.fields
        return [(each.name, arrow_type(each.dataType)) for each in fields]

    def empty_frame(self, node: "Node") -> DataFrame:
        """A DataFrame without rows that has all columns of the node's rows. PySpark's own function for that imports
        pandas."""
        schema = table_schema(node.columns, node.key) if node.is_table else stream_schema(node.columns)
        session = self._make_session()
        kinds = session._jsparkSession.parseDataType(from_arrow_schema(schema, prefer_timestamp_ntz=True).json())
        no_rows = session._jvm.java.util.ArrayList()  # type: ignore[union-attr]
        return DataFrame(session._jsparkSession.createDataFrame(no_rows, kinds), session)


def _check_operators(label: str, operators: Sequence[str]) -> None:
    if "Window" in operators:
        raise TopologyError(f"{label}: window functions need all rows at once; use group_by(...).window(...)")
    if foreign := [each for each in operators if each not in _STEPS]:
        raise TopologyError(f"{label}: Spark's {foreign[0]} does not work row by row")


def _operators_of(plan: Any) -> set[str]:
    """Names of the operators of an analysed plan."""
    found = {str(plan.nodeName())}
    for child in _list(plan.children()):
        found |= _operators_of(child)
    return found


def _expressions_of(plan: Any) -> Iterator[Any]:
    """All expressions of an analysed plan, with their parts."""
    for child in _list(plan.children()):
        yield from _expressions_of(child)
    waiting = _list(plan.expressions())
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting += _list(expression.children())


def _analyse(frame: DataFrame) -> Any:
    """The analysed plan of a DataFrame: an object of Spark's Catalyst in the JVM."""
    return frame._jdf.queryExecution().analyzed()


def _list(sequence: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [sequence.apply(index) for index in range(sequence.size())]


@contextmanager
def _one_line_errors(label: str, columns: pa.Schema) -> Iterator[None]:
    """Turns exceptions of Spark's analyser into a TopologyError of one line."""
    with silence_query_loggers():
        try:
            yield
        except PySparkException as error:
            raise TopologyError(f"{label}: {describe_exception(error, columns)}") from None


def describe_exception(error: PySparkException, columns: pa.Schema) -> str:
    """One line that says what is wrong with an expression."""
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith("UNRESOLVED_COLUMN"):
        return f"there is no column {parameters.get('objectName', '')}; there are {', '.join(columns.names)}"
    if condition.startswith("MISSING_GROUP_BY") or condition == "MISSING_AGGREGATION":
        return "an aggregate needs a group; use group_by(...).agg(..., name=...)"
    if condition.startswith("UNSUPPORTED_GENERATOR"):
        return "explode() and the like make several rows of one; they stand alone, in select() of a stream"
    text = str(error).strip()
    message = text.split("SQLSTATE", 1)[0] if "SQLSTATE" in text else text.splitlines()[0]
    message = " ".join(message.split())
    return (message.split("] ", 1)[1] if message.startswith("[") else message).rstrip(". ;")


# Schemas


def parse_schema(label: str, schema: Schema) -> pa.Schema:
    """The columns that a user has listed."""
    if isinstance(schema, StructType):
        found = user_columns(schema)
    elif isinstance(schema, pa.Schema):
        found = schema
    elif isinstance(schema, str):
        try:
            found = pa.schema(list(type_of_ddl(schema)))
        except ValueError as error:
            raise TopologyError(f"{label}: schema={schema!r}: {error}") from None
    else:
        raise TopologyError(f"{label}: schema must be a text such as 'id long, name string', not {schema!r}")
    check_names(label, found.names)
    return found


def user_columns(schema: StructType) -> pa.Schema:
    """The columns of a DataFrame that are not ours, as Arrow's types."""
    return pa.schema([(each.name, arrow_type(each.dataType)) for each in schema if not each.name.startswith("_")])


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type of a Spark type; the same that our own parser of SQL types finds, with nothing but nullable
    fields."""
    return _normalise(to_arrow_type(kind, timezone="UTC"))


def _normalise(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _normalise(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_normalise(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_normalise(kind.key_type), _normalise(kind.item_type))
    return kind


def check_names(label: str, names: Sequence[str]) -> None:
    """Names of columns that a step makes: none of ours, and none twice (Spark does not tell `a` from `A`)."""
    seen: dict[str, str] = {}
    for name in names:
        if name.startswith("_"):
            raise TopologyError(f"{label}: the column {name!r} begins with '_', as Ottla's own do; name it otherwise")
        if name.lower() in seen:
            both = repr(name) if seen[name.lower()] == name else f"{seen[name.lower()]!r} and {name!r}"
            raise TopologyError(f"{label}: there are two columns {both}; rename one with alias()")
        seen[name.lower()] = name


# Expressions


def to_item(label: str, given: object) -> Item:
    """What one argument of a select means."""
    if not isinstance(given, str | Column):
        raise TopologyError(f"{label}: {given!r} is neither a Column nor an SQL text")
    column = F.expr(given) if isinstance(given, str) else given
    return Item(column, _plain_name(label, column))


def find_plain_name(label: str, given: object) -> str | None:
    """The name, if an expression is nothing but the name of a column. Spark's parser is only asked if that cannot be
    seen: an app that names columns and computes none needs no session."""
    if isinstance(given, str) and _NAME.fullmatch(given) and given.lower() not in _LITERALS:
        return given
    return to_item(label, given).plain_name


def expression_of(label: str, column: Any) -> Any:
    """The expression of a Column, before analysis: an object of Spark's Catalyst in the JVM."""
    converter = getattr(getattr(_find_sql().classic, "ColumnNodeToExpressionConverter$"), "MODULE$")
    with _one_line_errors(label, pa.schema([])):
        return converter.apply(column._jc.node())


def column_of(expression: Any) -> Column:
    """The Column of an expression of Catalyst."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(_find_sql().classic.ExpressionUtils.column(expression))


def _find_sql() -> Any:
    """The package of Spark's SQL in the JVM. There is a session from then on."""
    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    return session._jvm.org.apache.spark.sql  # type: ignore[union-attr]


def kind_of(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _plain_name(label: str, column: Column) -> str | None:
    expression = expression_of(label, column)
    kind = kind_of(expression)
    if kind == "UnresolvedStar":
        return "*"
    if kind != "UnresolvedAttribute" or expression.nameParts().size() != 1:
        return None
    return str(expression.nameParts().apply(0))


def quote(name: str) -> str:
    """The name of a column as SQL takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


# Steps: what Spark does with the rows


def hidden_columns(frame: DataFrame, changed: Mapping[str, Column] | None = None) -> list[Column]:
    """Our columns of the rows, some of them changed. The old value of a table is left out: it is not that of the
    step's result."""
    made = changed or {}
    names = dict.fromkeys([*(name for name in frame.columns if name.startswith("_") and name != OLD), *made])
    return [made[name].alias(name) if name in made else F.col(name) for name in names]


class Trace(NamedTuple):
    """What steps do with the columns of the rows that they get."""

    unread: list[str]
    """Columns that no step computes anything of: they may be null."""
    passed: list[str]
    """Columns that come out as they were, by the same names."""


def trace(source: DataFrame, steps: Sequence[Step]) -> Trace:
    """Follows the columns of a DataFrame through steps that work row by row. Spark gives each column a number of its
    own, which it keeps for as long as nothing is computed of it."""
    with silence_query_loggers():
        names = {each.exprId().id(): str(each.name()) for each in _list(_analyse(source).output())}
        plan = _analyse(apply_steps(source, steps))
        passed = [str(each.name()) for each in _list(plan.output()) if names.get(each.exprId().id()) == each.name()]
        read: set[int] = set()
        while plan.nodeName() in _OPERATORS:
            read |= _find_read(plan)
            plan = plan.child()
    return Trace([name for number, name in names.items() if number not in read], passed)


def _find_read(operator: Any) -> set[int]:
    """The numbers of the columns that an operator computes something of. A projection may just pass columns on."""
    found = _list(operator.expressions())
    if operator.nodeName() == "Project":
        found = [each for each in found if kind_of(each) != "AttributeReference"]
    numbers = set()
    for expression in found:
        columns = expression.references().iterator()
        while columns.hasNext():
            numbers.add(columns.next().exprId().id())
    return numbers


def apply_to_fewer(source: DataFrame, steps: Sequence[Step], schema: StructType, wanted: Sequence[str]) -> DataFrame:
    """The columns `wanted` of what steps make of rows with `schema`. Columns that the source does not have are null:
    no step reads them."""
    whole = [
        F.col(quote(each.name)) if each.name in source.columns else F.lit(None).cast(each.dataType).alias(each.name)
        for each in schema
    ]
    return apply_steps(source.select(*whole), steps).select(*[F.col(quote(name)) for name in wanted])


def apply_steps(frame: DataFrame, steps: Sequence[Step]) -> DataFrame:
    for step in steps:
        frame = step(frame)
    return frame


def select_step(kept: Sequence[str], items: Sequence[Item], *, is_table: bool) -> Step:
    """Makes `items` the value and keeps the columns `kept`, those of the key. A deleted row of a table has no value;
    its columns are null already, but something may be computed of them that is not."""
    columns = [each.column for each in items]

    def apply(frame: DataFrame) -> DataFrame:
        made = columns
        if is_table:
            names = frame.select(*columns).columns
            made = [
                F.when(~F.col(DELETED), each.column).alias(name) if each.plain_name is None else each.column
                for each, name in zip(items, names, strict=True)
            ]
        return frame.select(*[F.col(quote(name)) for name in kept], *made, *hidden_columns(frame))

    return apply


def filter_step(condition: Column) -> Step:
    return lambda frame: frame.filter(condition)


def table_filter_step(condition: Column, columns: Sequence[str], key: Sequence[str]) -> Step:
    """Deletes the rows of a table that do not meet the condition: they may have met it before."""

    def apply(frame: DataFrame) -> DataFrame:
        is_kept = ~F.col(DELETED) & F.coalesce(condition, F.lit(False))
        values = [
            F.col(quote(name)) if name in key else F.when(is_kept, F.col(quote(name))).alias(name) for name in columns
        ]
        return frame.select(*values, *hidden_columns(frame, {DELETED: ~is_kept}))

    return apply


def branch_conditions(conditions: Sequence[Column]) -> list[Column]:
    """For each condition: that it holds and none before does; and at last that none holds. Null is false."""
    found = [F.coalesce(each, F.lit(False)) for each in conditions]
    result = []
    none_before = F.lit(True)
    for each in found:
        result.append(none_before & each)
        none_before = none_before & ~each
    return [*result, none_before]


def timestamp_step(time: Column, *, is_number: bool) -> Step:
    """Sets the time of rows where it is not null."""
    milliseconds = time if is_number else F.unix_millis(time.cast("timestamp"))

    def apply(frame: DataFrame) -> DataFrame:
        changed = {TIMESTAMP: F.coalesce(milliseconds, F.col(TIMESTAMP))}
        return frame.select(*_own_columns(frame), *hidden_columns(frame, changed))

    return apply


def header_step(headers: Mapping[str, Column | None]) -> Step:
    """Sets headers of rows; removes those whose value is null."""

    def apply(frame: DataFrame) -> DataFrame:
        kept = F.filter(
            F.coalesce(F.col(HEADERS), F.array().cast(_HEADERS)), lambda each: ~each["key"].isin(list(headers))
        )
        made = [
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in headers.items()
            if value is not None
        ]
        added = F.filter(F.array(*made).cast(_HEADERS), lambda each: each["value"].isNotNull())
        changed = {HEADERS: F.concat(kept, added)}
        return frame.select(*_own_columns(frame), *hidden_columns(frame, changed))

    return apply


def _own_columns(frame: DataFrame) -> list[Column]:
    return [F.col(quote(name)) for name in frame.columns if not name.startswith("_")]
