"""Aggregates of Spark's, taken apart: the function becomes ours, its argument a column that Spark computes before."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import Column

from ottla.streams.columns import column_of, expression_of, kind_of, to_item
from ottla.streams.errors import TopologyError
from ottla.streams.graph import BuiltInAggregate
from ottla.streams.relation import Relation

MERGEABLE: Final = ("count", "sum", "min", "max", "avg", "first", "last", "collect_list", "collect_set")
_SYNONYMS: Final = {"mean": "avg", "array_agg": "collect_list", "first_value": "first", "last_value": "last"}
_MAY_IGNORE_NULLS: Final = ("first", "last", "first_value", "last_value")

R = TypeVar("R", bound=Relation)


def decompose(
    relation: R, label: str, columns: Sequence[object], key: Sequence[str]
) -> tuple[R, list[BuiltInAggregate]]:
    """The aggregates, and the rows with a column for each argument that is more than a column."""
    if not columns:
        raise TopologyError(f'{label}: it needs at least one aggregate, such as F.sum("amount").alias("total")')
    found: list[BuiltInAggregate] = []
    arguments: dict[str, Column] = {}
    given = [to_item(label, each).column for each in columns]
    types = relation.types_of_aggregates(label, given)
    for column, (name, kind) in zip(given, types, strict=True):
        function, argument = _take_apart(label, column)
        plain = None if argument is None else to_item(label, argument).plain_name
        if argument is not None and (plain is None or plain not in relation.columns):
            plain = _free_name(name, [*relation.columns, *arguments, *key])
            arguments[plain] = argument
        found.append(BuiltInAggregate(function, plain, name, kind))
    return (relation.add_columns(label, arguments, in_value=False) if arguments else relation), found


class _Call(NamedTuple):
    """A call of an aggregate function, as it was written."""

    name: str
    arguments: list[Any]
    is_distinct: bool
    has_filter: bool
    ignores_nulls: bool


def _take_apart(label: str, column: Column) -> tuple[str, Column | None]:
    """The name of the function and its argument; None for count(*)."""
    call = _call_of(label, column)
    function = _SYNONYMS.get(call.name, call.name)
    if function not in MERGEABLE:
        raise _refuse(label, column, f"{call.name} cannot be merged from parts")
    if call.is_distinct:
        raise _refuse(label, column, "DISTINCT needs all rows; use collect_set")
    if call.has_filter:
        raise _refuse(label, column, "use F.when(condition, column) as the argument instead of FILTER")
    if call.ignores_nulls:
        raise _refuse(label, column, f"{call.name} does not ignore nulls; filter() them before")
    if len(call.arguments) != 1:
        raise _refuse(label, column, f"{call.name} takes one argument")
    (argument,) = call.arguments
    if function == "count" and kind_of(argument) in ("UnresolvedStar", "Literal"):
        return function, None
    return function, column_of(argument)


def _call_of(label: str, column: Column) -> _Call:
    """Spark's parser resolves first() and last() at once, all others only later."""
    expression = expression_of(label, column)
    while kind_of(expression) in ("Alias", "UnresolvedAlias"):
        expression = expression.child()
    if kind_of(expression) == "AggregateExpression":
        function = expression.aggregateFunction()
        name, arguments = str(function.prettyName()), _list(function.children())
        ignores_nulls = name in _MAY_IGNORE_NULLS and bool(function.ignoreNulls())
    elif kind_of(expression) == "UnresolvedFunction":
        name, arguments = str(expression.nameParts().mkString(".")).lower(), _list(expression.arguments())
        ignores_nulls = str(expression.ignoreNulls().toString()) == "Some(true)"
        if name in _MAY_IGNORE_NULLS and len(arguments) == 2:
            ignores_nulls = str(arguments.pop().toString()) == "true"
    else:
        raise _refuse(label, column, "this is not one aggregate")
    return _Call(name, arguments, bool(expression.isDistinct()), bool(expression.filter().isDefined()), ignores_nulls)


def _list(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _refuse(label: str, column: Column, reason: str) -> TopologyError:
    return TopologyError(f"{label}: {column}: {reason}. These work: {', '.join(MERGEABLE)}")


def _free_name(wanted: str, taken: Sequence[str]) -> str:
    """A name for a computed argument that no other column has."""
    lower = {each.lower() for each in taken}
    name = wanted
    while name.lower() in lower:
        name += "_argument"
    return name
