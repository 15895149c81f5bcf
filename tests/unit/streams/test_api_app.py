"""App: its settings are checked at once, and it describes itself as text and as a picture."""

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

import ottla.streams
from ottla.streams import App, ListState, StreamsError, TopologyError, tumbling
from ottla.streams.graph import walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "my shop"}, r"App: the name 'my shop' must consist of letters, digits"),
        ({"name": ""}, "the name '' must"),
        ({"name": 3}, "the name 3 must"),
        ({"name": "x" * 101}, "the name is 101 characters long; 100 are possible"),
        ({"bootstrap": "localhost"}, "bootstrap='localhost': an address is a host and a port"),
        ({"bootstrap": "a:1,b"}, "bootstrap='b': an address"),
        ({"http": "127.0.0.1:99999"}, "http='127.0.0.1:99999': an address"),
        ({"master": ""}, "master='': it must be a text"),
        ({"guarantee": "at-most-once"}, "guarantee='at-most-once': it can be 'exactly-once'"),
        ({"guarantee": "at-least-once"}, "at-least-once: not supported yet"),
        ({"master": "yarn"}, "YARN and Kubernetes: not supported yet"),
        ({"on_bad_record": "ignore"}, "on_bad_record='ignore': it can be 'fail' or 'skip' or 'dead-letter'"),
        ({"on_error": None}, "on_error=None: it can be"),
        ({"on_late": "fail"}, "on_late='fail': it can be 'skip' or 'dead-letter'"),
        ({"dead_letter_topic": "a b"}, "dead_letter_topic: 'a b' cannot name a topic"),
        ({"state_dir": " "}, "state_dir=' ': it must be a text"),
        ({"batch_rows": 0}, "batch_rows=0: it must be a whole number from 1 on"),
        ({"interval_ms": -1}, "interval_ms=-1: it must be a whole number from 0 on"),
        ({"interval_ms": True}, "interval_ms=True"),
        ({"settings": "a=b"}, "settings must be a dictionary of Kafka client settings"),
        ({"config": {1: 2}}, "config must be a dictionary of Spark settings"),
        ({"standbys": 1}, "standbys: not supported yet"),
    ],
)
def test_settings_are_checked_before_spark_starts(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(StreamsError, match=reason) as error:
        App(**{"name": "shop", **options})
    assert "\n" not in str(error.value)


def test_columns_can_be_made_right_after_the_app(spark: "SparkSession") -> None:
    app = App("shop", on_error="dead-letter")

    from pyspark.sql import functions as F

    assert str(F.col("amount")) == "Column<'amount'>"
    assert app.spark is app.spark
    assert app.options.dead_letters == "shop-dead-letters"


def test_only_columns_that_are_computed_need_a_session(spark: "SparkSession") -> None:
    """Without one, Spark loads half as many classes."""
    app = App("shop")
    orders = app.stream("orders", value="order string, shop string, amount double")
    shops = app.table("shops", key_column="shop", value="name string, owner string")
    owners = app.table("owners", key_column="owner", value="age int")
    large = orders.filter(lambda row: row["amount"] > 1).map(lambda row: row, schema="shop string, amount double")
    large.join(shops, on="shop").to("enriched")
    large.group_by("shop").window(tumbling("1 minute")).count(name="per-minute").to("per-minute")
    shops.join(owners, on="owner", name="with-owners").to("with-owners")
    assert "spark" not in vars(app)

    orders.select("amount * 2 as twice")
    assert "spark" in vars(app)


def test_texts_that_are_no_names_of_columns_are_computed(spark: "SparkSession") -> None:
    orders = App("shop").stream("orders", value="shop string, amount double")
    assert orders.select_key("`shop`").key_columns == orders.select_key("shop").key_columns == ("shop",)
    assert orders.select_key("true").key_columns == ("true",)
    with pytest.raises(TopologyError, match="there is no column 'name'"):
        orders.select_key("name")


def test_what_is_not_there_yet_is_refused_by_name(spark: "SparkSession") -> None:
    app = App("shop")
    with pytest.raises(TopologyError, match=r"table: versioned tables: not supported yet"):
        app.table("users", versioned="7 days")
    with pytest.raises(TopologyError, match=r"global_table: global tables: not supported yet \(use app.table"):
        app.global_table("users")
    with pytest.raises(TopologyError, match="list state: not supported yet"):
        ListState("string")


def test_the_package_has_its_public_names() -> None:
    for name in ottla.streams.__all__:
        assert getattr(ottla.streams, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Streams'"):
        _ = ottla.streams.Streams


@pytest.fixture
def shop(spark: "SparkSession") -> App:
    app = App("shop")
    orders = app.stream("orders", value="shop string, amount double, at timestamp", time="at")
    shops = app.table("shops", value="name string")
    per_minute = orders.filter("amount > 0").group_by("shop").window(tumbling("1 minute"))
    per_minute.agg("sum(amount) as revenue", name="revenue").to("revenue")
    orders.filter(lambda row: row["amount"] > 1).join(shops, on="shop").to("enriched")
    return app


def test_an_app_describes_itself_as_text(spark: "SparkSession") -> None:
    app = App("words")
    words = app.stream("lines", value="string").select("explode(split(value, ' ')) as word")
    words.group_by("word").count(name="word-counts").to("counts")

    text = app.describe()

    assert text.startswith("app words\n")
    for line in ("reads    lines", "store    word-counts, kept in words-word-counts-changelog", "writes   counts"):
        assert f"  {line}\n" in f"{text}\n"
    with pytest.raises(StreamsError, match="describe: 'png': it can be 'text' or 'svg'"):
        app.describe("png")


def test_an_app_draws_itself_without_overlaps(shop: App) -> None:
    picture = ElementTree.fromstring(shop.describe("svg"))

    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert {"orders", "shops", "revenue", "join-shops", "enriched", "filter in Python"} <= set(texts)
    boxes = [
        tuple(float(each.attrib[name]) for name in ("x", "y", "width", "height")) for each in picture.iter(f"{SVG}rect")
    ]
    assert len(boxes) == len(walk(shop.nodes))
    for number, (x, y, width, height) in enumerate(boxes):
        assert x + width <= float(picture.attrib["width"])
        assert y + height <= float(picture.attrib["height"])
        for other_x, other_y, other_width, other_height in boxes[:number]:
            apart_x = x >= other_x + other_width or other_x >= x + width
            apart_y = y >= other_y + other_height or other_y >= y + height
            assert apart_x or apart_y
    arrows = [each for each in picture.iter(f"{SVG}path") if "marker-end" in each.attrib]
    assert len(arrows) == sum(len(each.inputs) for each in walk(shop.nodes))
