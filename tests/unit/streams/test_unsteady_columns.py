"""Columns whose values do not follow from the row: random numbers and the clock are refused by every operator."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ottla.streams import App, StreamsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def app(spark: "SparkSession") -> App:
    return App("shop")


@pytest.fixture
def orders(app: App) -> Any:
    return app.stream("orders", key="string", value="shop string, amount double, at timestamp", time="at")


@pytest.fixture
def prices(app: App) -> Any:
    return app.table("prices", value="price double, name string")


def refuse(make: Callable[[], object], beginning: str) -> str:
    """The message of the refusal, which begins with the operator and is one line."""
    with pytest.raises(StreamsError) as error:
        make()
    message = str(error.value)
    assert message.startswith(beginning) and "\n" not in message
    return message


@pytest.mark.parametrize(
    "text",
    ["rand()", "randn(3)", "uuid()", "monotonically_increasing_id()", "spark_partition_id()", "shuffle(array(1, 2))"],
)
def test_columns_that_do_not_follow_from_the_row_are_refused(orders: Any, text: str) -> None:
    """Spark plans a batch once: it would give each batch the same random numbers."""
    name = text.partition("(")[0]
    said = refuse(lambda: orders.with_columns(x=text), f"with_columns-1: {name}() does not follow from the row")
    assert said.endswith("compute it in Python, with map(function, schema=...)")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("current_timestamp()", "current_timestamp"),
        ("now()", "now"),
        ("date_add(current_date(), 1)", "current_date"),
        ("unix_timestamp()", "current_timestamp"),
        ("localtimestamp()", "localtimestamp"),
    ],
)
def test_the_clock_is_refused(orders: Any, text: str, name: str) -> None:
    said = refuse(lambda: orders.select(f"{text} as x"), f"select-1: {name}() would be the time of the first batch")
    assert "use the time of the rows, which time= of app.stream sets" in said


def test_such_columns_are_refused_wherever_they_stand(orders: Any, prices: Any) -> None:
    from pyspark.sql import functions as F

    anywhere = "rand() does not follow from the row"
    assert anywhere in refuse(lambda: orders.filter(F.rand() > 0.5), "filter-1: ")
    assert anywhere in refuse(lambda: orders.branch(F.rand() > 0.5), "branch-1.0: ")
    assert anywhere in refuse(lambda: orders.group_by((F.rand() * 9).cast("int").alias("n")), "group_by-1: ")
    assert anywhere in refuse(lambda: orders.select_key((F.rand() * 9).cast("int").alias("n")), "select_key-1: ")
    spark_says = refuse(lambda: orders.group_by("shop").agg(F.sum(F.rand()), name="x"), "agg 'x': ")
    assert "Non-deterministic" in spark_says
    assert anywhere in refuse(lambda: prices.filter(F.rand() > 0.5), "filter-2: ")
    assert anywhere in refuse(lambda: orders.to(F.concat(F.lit("t"), F.rand().cast("string"))), "to-1: ")
    assert anywhere in refuse(lambda: orders.with_headers({"x": F.rand().cast("string")}), "with_headers-1: ")
    unsteady = F.udf(lambda: 4, "int").asNondeterministic()
    assert "does not follow from the row" in refuse(lambda: orders.select(unsteady().alias("x")), "select-1: ")
    assert orders.select("current_timezone() as zone").columns == ["key", "zone"]
