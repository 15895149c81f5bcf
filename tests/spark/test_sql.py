"""Topics as tables: ottla.spark.sql, views, and the command `ottla sql`."""

from threading import Thread
from typing import TYPE_CHECKING

import pytest

import ottla.spark
from ottla.cli import main
from ottla.client.client import UnknownTopic
from ottla.spark.topic_tables import complete_options
from ottla.testing import LocalBroker
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker(ottla_session_broker: LocalBroker) -> LocalBroker:
    """A broker with two topics that can be joined, of which one needs quotes."""
    broker = ottla_session_broker
    broker.create_topic("sold")
    broker.create_topic("shop.items")
    send(broker, "sold", [{"key": key, "value": f'{{"item": "{key}", "price": {price}}}'} for key, price in SALES])
    send(broker, "shop.items", [{"key": "a", "value": "apple"}, {"key": "b", "value": "pear"}, {"value": b"\xff"}])
    return broker


SALES = [("a", 1.5), ("b", 2), ("a", 3)]
QUERY = "select i.value, sum(price) as total from Sold s join `shop.items` i on i.key = s.item group by 1 order by 1"


def test_tables_have_readable_columns_by_default() -> None:
    """By default values are text, fields are columns, and bad records are nulls with a reason."""
    given = complete_options("b:1", None)
    assert (given["keyformat"], given["valueformat"], given["badrecords"]) == ("string", "string", "null")
    assert given["columns"] == "key,value,topic,partition,offset,timestamp,error"
    given = complete_options("b:1", {"valueFormat": "avro", "badRecords": "fail", "includeHeaders": "true"})
    assert given["expandvalue"] == "true"
    assert given["columns"] == "key,value,topic,partition,offset,timestamp,headers"
    given = complete_options("b:1", {"KEYFORMAT": "binary", "valueFormat": "binary"})
    assert not {"badrecords", "expandvalue"} & given.keys()
    assert given["columns"] == "key,value,topic,partition,offset,timestamp"


def test_a_query_makes_views_of_the_topics_it_names(spark: "SparkSession", broker: LocalBroker) -> None:
    """Only topics that the query names become views, and only while it runs. A name that is no topic is an error."""
    options = {"valueFormat": "json", "valueSchema": "item STRING, price DOUBLE"}
    ottla.spark.tables(spark, "shop.items", bootstrap=broker.bootstrap)
    frame = ottla.spark.sql(QUERY, bootstrap=broker.bootstrap, options=options, spark=spark)
    assert [tuple(row) for row in frame.collect()] == [("apple", 4.5), ("pear", 2.0)]
    assert [table.name for table in spark.catalog.listTables()] == ["shop.items"]
    spark.catalog.dropTempView("shop.items")
    for query, said in (
        ("select * from absent", "there is no topic 'absent'"),
        ("select * from shop.items", "must stand in backquotes, because of its dots: `shop.items`"),
    ):
        with pytest.raises(UnknownTopic, match=said):
            ottla.spark.sql(query, bootstrap=broker.bootstrap, spark=spark)


def test_the_command_prints_rows(
    spark: "SparkSession", broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are printed as a table or as JSON. Fields of JSON are columns without any option. Errors are one line."""

    def ottla_sql(*arguments: str) -> tuple[int, str, str]:
        status = main(["sql", *arguments, "-b", broker.bootstrap])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    query = "select item, count(*) as n, sum(price) as total from sold group by item order by item"
    assert ottla_sql(query, "--value-format", "json") == (0, "ITEM  N  TOTAL\na     2    4.5\nb     1    2.0\n", "")
    query = "select key, value, error from `shop.items` where offset > 0 order by offset"
    assert ottla_sql(query, "--format", "json", "-n", "2") == (
        0,
        '{"key": "b", "value": "pear", "error": null}\n'
        '{"key": null, "value": null, "error": "value: not UTF-8: invalid start byte at byte 0"}\n',
        "",
    )
    for query, status, said in (
        ("select * from absent", 1, "ottla: sql: there is no topic 'absent'\n"),
        ("selec", 2, "ottla: sql: Syntax error at or near 'selec'\n"),
        ("select none from sold", 2, "ottla: sql: A column, variable, or function parameter with name `none` cannot"),
    ):
        found, out, err = ottla_sql(query)
        assert (found, out) == (status, "")
        assert err.startswith(said) and err.count("\n") == 1


def test_a_followed_query_prints_new_rows(
    spark: "SparkSession", broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that come later are printed too, up to the requested number. Then the command ends, and nothing keeps
    running."""
    broker.create_topic("live")
    send(broker, "live", [{"value": "first"}])
    feeding = Thread(target=send, args=(broker, "live", [{"value": "second"}, {"value": "third"}]))
    feeding.start()
    assert main(["sql", "select value, offset from live", "--follow", "-n", "3", "-b", broker.bootstrap]) == 0
    feeding.join()
    assert capsys.readouterr().out.split() == ["VALUE", "OFFSET", "first", "0", "second", "1", "third", "2"]
    assert not spark.streams.active
