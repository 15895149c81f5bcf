"""Aggregates of Spark's, taken apart: the function becomes ours, its argument a column that Spark computes before."""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import Column

from ottla.streams.columns import column_of, expression_of, kind_of, to_item
from ottla.streams.errors import TopologyError
from ottla.streams.graph import BuiltInAggregate
from ottla.streams.relation import Relation

MERGEABLE: Final = ("count", "sum", "min", "max", "avg", "first", "last", "collect_list", "collect_set")
_SYNONYMS: Final = {"mean": "avg", "array_agg": "collect_list", "first_value": "first", "last_value": "last"}
_IGNORES_NULLS: Final = ("first", "last")

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
    return (relation.add_columns(label, arguments) if arguments else relation), found


def _take_apart(label: str, column: Column) -> tuple[str, Column | None]:
    """The name of the function and its argument; None for count(*)."""
    expression = expression_of(label, column)
    while kind_of(expression) in ("Alias", "UnresolvedAlias"):
        expression = expression.child()
    if kind_of(expression) != "UnresolvedFunction":
        raise _refuse(label, column, "is not one aggregate")
    name = str(expression.nameParts().mkString("."))
    function = _SYNONYMS.get(name.lower(), name.lower())
    if function not in MERGEABLE:
        raise _refuse(label, column, f"{name} cannot be merged from parts")
    if expression.isDistinct():
        raise _refuse(label, column, "DISTINCT needs all rows; use collect_set")
    if expression.filter().isDefined():
        raise _refuse(label, column, "use F.when(condition, column) as the argument instead of FILTER")
    arguments = expression.arguments()
    if arguments.size() > 1 and not (function in _IGNORES_NULLS and not _is_true(arguments.apply(1))):
        raise _refuse(label, column, f"{name} with more than one argument is not supported")
    if arguments.size() == 0:
        raise _refuse(label, column, f"{name} needs an argument")
    argument = arguments.apply(0)
    if function == "count" and kind_of(argument) in ("UnresolvedStar", "Literal"):
        return function, None
    return function, column_of(argument)


def _is_true(literal: Any) -> bool:
    return str(literal.toString()) == "true"


def _refuse(label: str, column: Column, reason: str) -> TopologyError:
    return TopologyError(f"{label}: {column}: {reason}. These work: {', '.join(MERGEABLE)}")


def _free_name(wanted: str, taken: Sequence[str]) -> str:
    """A name for a computed argument that no other column has."""
    lower = {each.lower() for each in taken}
    name = wanted
    while name.lower() in lower:
        name += "_argument"
    return name
