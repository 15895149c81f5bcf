"""The built-in aggregates as columns of accumulators, which can be merged in any number of steps.

Nulls are treated as Spark SQL treats them: count of a column, sum, min, max, avg and the collecting ones skip them;
first and last do not. A sum of integers is 64 bits wide. An overflow is refused as Spark does with its ANSI mode, which
is its default, because a wrapped sum looks like a right one. Sums of decimals are exact.

An accumulator has the name of the result's column where it is the result. What else it needs begins with `_`, so it
never collides with a column of the user, and whoever reads the state for its results ignores it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.streams.errors import StreamsError, TopologyError
from ottla.streams.graph import BuiltInAggregate
from ottla.streams.kernels.grouping import Groups, Numbers, group_by_columns

RETRACTABLE: Final = ("count", "sum", "avg")
"""Those that can take a row away again. The others would have to remember every row."""

_LARGEST_INTEGER: int = 2**63
_LARGEST_DECIMAL: int = 10**38


class Accumulator(ABC):
    """One built-in aggregate: `fields` are its columns between two steps and in the state."""

    def __init__(self, aggregate: BuiltInAggregate, fields: Sequence[pa.Field]) -> None:
        self.aggregate = aggregate
        self.fields = tuple(fields)

    @abstractmethod
    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        """Accumulators of rows, one for each group."""

    @abstractmethod
    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """Accumulators of accumulators, one for each group."""

    def negate(self, accumulators: Sequence[pa.Array]) -> list[pa.Array]:
        """Accumulators that take away what these add."""
        raise TopologyError(
            f"{self.aggregate.function} of column {self.aggregate.column}: a table's rows change, and this aggregate "
            f"cannot take a value away again; use count, sum or avg, or aggregate with a subtract function of your own"
        )

    def result(self, accumulators: Sequence[pa.Array]) -> pa.Array:
        return accumulators[0]


def make_accumulators(aggregates: Sequence[BuiltInAggregate], *, retractable: bool = False) -> list[Accumulator]:
    """Raises TopologyError for an aggregate of a type that it cannot work on, or that cannot be retracted."""
    found = [_make(aggregate, retractable) for aggregate in aggregates]
    for each in found:
        if retractable and each.aggregate.function not in RETRACTABLE:
            each.negate([])
    return found


def _make(aggregate: BuiltInAggregate, retractable: bool) -> Accumulator:
    match aggregate.function:
        case "count":
            return _Count(aggregate, [pa.field(aggregate.result, pa.int64())])
        case "sum":
            return _Sum(aggregate, retractable)
        case "avg":
            return _Average(aggregate)
        case "min" | "max":
            return _Extreme(aggregate)
        case "first" | "last":
            return _Position(aggregate, [pa.field(aggregate.result, aggregate.type)])
        case "collect_list" | "collect_set":
            return _Collection(aggregate, [pa.field(aggregate.result, aggregate.type)])
    raise TopologyError(
        f"{aggregate.function} is no built-in aggregate; write it as an aggregate of your own in Python"
    )


class _Count(Accumulator):
    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        return [_count(argument, groups)]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [_sum(accumulators[0], groups, pa.int64(), self.aggregate)]

    def negate(self, accumulators: Sequence[pa.Array]) -> list[pa.Array]:
        return [pc.negate(accumulators[0])]


class _Sum(Accumulator):
    """Null if no value is left. To know that after values were taken away, a retractable sum counts them too."""

    def __init__(self, aggregate: BuiltInAggregate, retractable: bool) -> None:
        self._retractable = retractable
        counted = [pa.field(f"_{aggregate.result}_count", pa.int64())] if retractable else []
        super().__init__(aggregate, [pa.field(aggregate.result, aggregate.type), *counted])

    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        assert argument is not None
        counted = [_count(argument, groups)] if self._retractable else []
        return [_sum(argument, groups, self.aggregate.type, self.aggregate), *counted]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        kinds = [field.type for field in self.fields]
        return [_sum(each, groups, kind, self.aggregate) for each, kind in zip(accumulators, kinds, strict=True)]

    def negate(self, accumulators: Sequence[pa.Array]) -> list[pa.Array]:
        return [pc.negate(each) for each in accumulators]

    def result(self, accumulators: Sequence[pa.Array]) -> pa.Array:
        if not self._retractable:
            return accumulators[0]
        return pc.if_else(pc.equal(accumulators[1], 0), pa.scalar(None, self.aggregate.type), accumulators[0])


class _Average(Accumulator):
    """Kept as sum and count. The sum of decimals is exact; of anything else it is a double, as in Spark."""

    def __init__(self, aggregate: BuiltInAggregate) -> None:
        kind = aggregate.type
        # Spark gives the average of decimals four more digits after the point than its argument has.
        self._total = pa.decimal128(38, max(0, kind.scale - 4)) if pa.types.is_decimal(kind) else pa.float64()
        names = (f"_{aggregate.result}_sum", f"_{aggregate.result}_count")
        super().__init__(aggregate, [pa.field(names[0], self._total), pa.field(names[1], pa.int64())])

    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        assert argument is not None
        return [_sum(argument, groups, self._total, self.aggregate), _count(argument, groups)]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        kinds = [field.type for field in self.fields]
        return [_sum(each, groups, kind, self.aggregate) for each, kind in zip(accumulators, kinds, strict=True)]

    def negate(self, accumulators: Sequence[pa.Array]) -> list[pa.Array]:
        return [pc.negate(each) for each in accumulators]

    def result(self, accumulators: Sequence[pa.Array]) -> pa.Array:
        total, count = accumulators
        count = pc.if_else(pc.equal(count, 0), pa.scalar(None, pa.int64()), count)
        if not pa.types.is_decimal(self.aggregate.type):
            return pc.divide(total, count.cast(pa.float64()))
        unit = Decimal(1).scaleb(-self.aggregate.type.scale)
        context = Context(prec=80, rounding=ROUND_HALF_UP)
        pairs = zip(total.to_pylist(), count.to_pylist(), strict=True)
        found = [
            None if not number else context.divide(sum_, number).quantize(unit, context=context)
            for sum_, number in pairs
        ]
        return _convert(lambda: pa.array(found, self.aggregate.type), self.aggregate)


class _Extreme(Accumulator):
    """min or max. NaN is larger than any other number, as in Spark."""

    def __init__(self, aggregate: BuiltInAggregate) -> None:
        if pa.types.is_nested(aggregate.type) or pa.types.is_null(aggregate.type):
            raise TopologyError(
                f"{aggregate.function} of column {aggregate.column}: values of type {aggregate.type} have no order; "
                f"use one of its fields"
            )
        super().__init__(aggregate, [pa.field(aggregate.result, aggregate.type)])

    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        assert argument is not None
        column = argument.cast(self.aggregate.type)
        if groups.are_single_rows:
            return [column]
        if not pa.types.is_floating(column.type):
            return [groups.aggregate(column, self.aggregate.function)]
        is_nan = pc.is_nan(column)
        numbers = groups.aggregate(pc.if_else(is_nan, pa.scalar(None, column.type), column), self.aggregate.function)
        if not pc.any(is_nan).as_py():
            return [numbers]
        has_nan = groups.aggregate(pc.fill_null(is_nan, False), "max")
        if self.aggregate.function == "min":
            has_nan = pc.and_(has_nan, numbers.is_null())
        return [pc.if_else(has_nan, pa.scalar(float("nan"), column.type), numbers)]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self.collect(accumulators[0], groups)


class _Position(Accumulator):
    """first or last by the order of the rows, which may be a null."""

    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        assert argument is not None
        column = argument.cast(self.aggregate.type)
        if groups.are_single_rows:
            return [column]
        return [column.take(pa.array(groups.first if self.aggregate.function == "first" else groups.last))]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self.collect(accumulators[0], groups)


class _Collection(Accumulator):
    """collect_list, or collect_set with each value where it first appeared. Empty, never null, without values."""

    def collect(self, argument: pa.Array | None, groups: Groups) -> list[pa.Array]:
        assert argument is not None
        rows, _ = groups.members
        kept = rows[argument.is_valid().to_numpy(zero_copy_only=False)[rows]]
        return [self._as_lists(argument.take(pa.array(kept)), groups.numbers[kept], groups.count)]

    def merge(self, accumulators: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        if groups.are_single_rows:
            return [accumulators[0]]
        rows, _ = groups.members
        lists = accumulators[0].take(pa.array(rows))
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
        return [self._as_lists(lists.flatten(), np.repeat(groups.numbers[rows], lengths), groups.count)]

    def _as_lists(self, values: pa.Array, owners: Numbers, count: int) -> pa.Array:
        """Lists of values by the number of the group that owns them. Owners are in ascending order."""
        if self.aggregate.function == "collect_set" and len(values):
            kept = group_by_columns([pa.array(owners), values]).first
            values, owners = values.take(pa.array(kept)), owners[kept]
        ends = np.cumsum(np.bincount(owners, minlength=count))
        offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
        return pa.ListArray.from_arrays(offsets, values).cast(self.aggregate.type)


def _count(argument: pa.Array | None, groups: Groups) -> pa.Array:
    numbers = groups.numbers
    if argument is not None and argument.null_count:
        numbers = numbers[argument.is_valid().to_numpy(zero_copy_only=False)]
    return pa.array(np.bincount(numbers, minlength=groups.count))


def _sum(argument: pa.Array, groups: Groups, kind: pa.DataType, aggregate: BuiltInAggregate) -> pa.Array:
    """Sums of type `kind`, null for a group without values. An overflow is an error, never a wrong number."""
    if not pa.types.is_decimal(kind):
        argument = argument.cast(kind)
    if groups.are_single_rows:
        return _convert(lambda: argument.cast(kind), aggregate)
    if pa.types.is_floating(kind) or _is_far_from_overflow(argument):
        return _convert(lambda: groups.aggregate(argument, "sum").cast(kind), aggregate)
    sums: list[int | Decimal | None] = [None] * groups.count
    context = Context(prec=80)
    for number, value in zip(groups.numbers.tolist(), argument.to_pylist(), strict=True):
        if value is not None:
            before = sums[number]
            sums[number] = value if before is None else _add(before, value, context)
    return _convert(lambda: pa.array(sums, kind), aggregate)


def _add(left: int | Decimal, right: int | Decimal, context: Context) -> int | Decimal:
    return context.add(left, right) if isinstance(left, Decimal) else left + right


def _is_far_from_overflow(column: pa.Array) -> bool:
    """Even if all rows were in one group and as large as the largest, the sum would fit what Arrow computes with."""
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is None:
        return True
    largest: int = max(abs(int(bounds["min"])), abs(int(bounds["max"]))) + 1
    if pa.types.is_decimal(column.type):
        unit: int = 10**column.type.scale
        return largest * len(column) * unit < _LARGEST_DECIMAL
    return largest * len(column) < _LARGEST_INTEGER


def _convert(compute: Callable[[], pa.Array], aggregate: BuiltInAggregate) -> pa.Array:
    try:
        return compute()
    except (pa.ArrowInvalid, OverflowError):
        raise StreamsError(
            f"{aggregate.function} of column {aggregate.column}: the result does not fit {aggregate.type}; "
            f"cast the column to a wider type, such as decimal or double"
        ) from None
