"""Calls of operators and functions of the user: what is wrong with them, in one line with the remedy."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.streams import Processor, TopologyError, hopping, session, tumbling
from ottla.streams.calls import check_function, check_processor, operator


class Groups:
    @operator
    def count(self, *, name: str, emit: str = "update") -> str:
        return f"{name} {emit}"

    @operator
    def reduce(self, add: Any, subtract: Any, *, name: str) -> None:
        """Of a table."""

    @operator
    def with_columns(self, **columns: str) -> list[str]:
        return [*columns]


GROUPS: Any = Groups()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GROUPS.count(), "count: it needs name=: state needs a name, by which it is found again: name='...'"),
        (lambda: GROUPS.count("x"), "count: too many arguments; give these by name: count(name=..., emit=...)"),
        (lambda: GROUPS.count(nam="x"), "count: there is no argument 'nam'; there are name, emit"),
        (lambda: GROUPS.reduce(max, name="x"), "reduce: it needs subtract=: a function that takes a row away again"),
        (
            lambda: GROUPS.with_columns("x"),
            "with_columns: too many arguments; give these by name: with_columns(column=",
        ),
        (lambda: tumbling(), "tumbling: it needs size="),  # type: ignore[call-arg]
        (lambda: hopping("1 minute"), "hopping: it needs advance="),  # type: ignore[call-arg]
        (lambda: session("1 minute", "1 s"), "session: too many arguments; give these by name: session(grace="),  # type: ignore[call-arg]
    ],
)
def test_wrong_arguments_are_refused_with_the_remedy(make: Callable[[], object], said: str) -> None:
    with pytest.raises(TopologyError) as error:
        make()
    assert str(error.value).startswith(said) and "\n" not in str(error.value)


def test_right_arguments_are_passed_on() -> None:
    assert GROUPS.count(name="x") == "x update"
    assert GROUPS.with_columns(a="1", b="2") == ["a", "b"]

    def fail() -> None:
        raise TypeError("a mistake of the operator itself")

    with pytest.raises(TypeError, match="of the operator itself"):
        operator(fail)()


def test_functions_must_take_what_they_are_called_with() -> None:
    for function in (lambda one, two: one, lambda *rows: rows, max, dict, print, lambda one, two, three=0: one):
        check_function("reduce", "function", function, "combined", "row")
    refused: list[tuple[Any, str]] = [
        (lambda one: one, "reduce: function is called with (combined, row), which <lambda> does not take; change"),
        (None, "reduce: it needs function=, a function"),
        ("sum", "reduce: function='sum' is not a function"),
    ]
    for wrong, said in refused:
        with pytest.raises(TopologyError) as error:
            check_function("reduce", "function", wrong, "combined", "row")
        assert str(error.value).startswith(said)
    with pytest.raises(
        TopologyError, match="aggregate: zero is called with no arguments, which <lambda> does not take"
    ):
        check_function("aggregate", "zero", lambda value: value)


class Whole(Processor):
    def process(self, row: Any, context: Any) -> None:
        return None


class Empty(Processor):
    """It has no method `process`."""


class Narrow(Processor):
    def process(self, row: Any) -> None:  # type: ignore[override]
        return None


class Demanding(Whole):
    def __init__(self, limit: int) -> None:
        self.limit = limit


def test_processors_must_be_complete() -> None:
    check_processor(Whole, Processor)
    for processor, said in (
        (Whole(), "is not a subclass of ottla.streams.Processor"),
        (Empty, r"Empty does not have the method process\(self, row, context\); add it"),
        (Narrow, r"Narrow.process must be process\(self, row, context\); change its parameters"),
        (Demanding, r"Demanding\(\) is made without arguments"),
    ):
        with pytest.raises(TopologyError, match=f"^process: .*{said}"):
            check_processor(processor, Processor)
