"""The JMS connectors on a broker, Spark and a real ActiveMQ, whose JMS client sends and receives."""

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ottla.connect.connectors.jms.jms_sink import ActiveMQSink
from ottla.connect.connectors.jms.jms_source import ActiveMQSource
from ottla.connect.worker.runs import State
from ottla.testing import LocalBroker
from tests.connect.documented import read_documented_config
from tests.connect.jms_brokers import JmsBroker, make_classic, running_broker
from tests.connect.runs import count_records, read_group, read_records, running, wait_until
from tests.connect.test_kills import Driver
from tests.samples import sample_size
from tests.spark.topics import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long
JSON = "org.apache.kafka.connect.json.JsonConverter"


@pytest.fixture
def mq(tmp_path: Path) -> Iterator[JmsBroker]:
    with running_broker(make_classic(tmp_path)) as found:
        yield found


def make_settings(mq: JmsBroker, name: str | None = None, **more: Any) -> dict[str, Any]:
    """Those of a documented connector, at this broker."""
    config = read_documented_config(name) if name else {}
    config |= {"activemq.url": mq.url, "activemq.username": "ottla", "activemq.password": "hush-hush"}
    found = {key.replace(".", "_"): text for key, text in config.items() if key not in ("name", "connector.class")}
    return found | more


def read_values(broker: LocalBroker, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each["value"])["payload"] for each in read_records(broker, topic)]


def test_messages_of_a_queue(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    """The documented configuration; text, bytes and maps of a JMS client, with their headers and properties."""
    for kind in ("text", "bytes", "map"):
        mq.send("orders", kind, 1, 7)
    with running(spark, broker, ActiveMQSource, "jms", **make_settings(mq, "incoming-orders")) as source:
        wait_until(lambda: count_records(broker, "orders") == 3, lambda: source.status)
    text, data, mapped = read_values(broker, "orders")
    assert (text["messageType"], text["text"]) == ("text", "text 7 ü 😀")
    assert (data["messageType"], base64.b64decode(data["bytes"])) == ("bytes", b"\x00\x01\x07\x00\xff\n")
    assert mapped["map"]["number"]["integer"] == 7
    assert mapped["map"]["long"]["long"] == 1 << 40
    assert mapped["map"]["half"]["double"] == 0.5
    assert mapped["map"]["yes"]["boolean"] is True
    assert mapped["map"]["name"]["string"] == "n7"
    for each in (text, data, mapped):
        assert each["properties"]["colour"]["string"] == "blue:green"
        assert (each["correlationID"], each["type"], each["deliveryMode"]) == ("c7", "kind", 2)
        assert each["replyTo"] == {"destinationType": "queue", "name": "answers"}
    assert mq.take("orders", 0) == [], "they were acknowledged"


def test_a_broker_that_is_killed(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    """The connector reconnects; messages that were written and not acknowledged are not written again."""
    settings = make_settings(mq, jms_destination_name="q", kafka_topic="killed", batch_size=10, tasks_max=2)
    with running(spark, broker, ActiveMQSource, "jms-killed", **settings, value_converter=JSON) as source:
        for number in range(4):
            mq.send("q", "text", 50, number * 50)
            wait_until(lambda number=number: count_records(broker, "killed") > number * 50, lambda: source.status)  # type: ignore[misc]
            mq.kill()
            mq.start()
        wait_until(lambda: count_records(broker, "killed") >= 200, lambda: source.status)
    texts = Counter(each["text"] for each in read_values(broker, "killed"))
    assert texts == Counter(f"text {n} ü 😀" for n in range(200))
    assert mq.take("q", 0) == []


def test_kills_of_the_driver(broker: LocalBroker, mq: JmsBroker, tmp_path: Path, seed: int) -> None:
    """With all its processes, at random points. Messages come again, and are written once."""
    random = Random(seed)
    (tmp_path / "url").write_text(mq.url)
    driver = Driver(broker, tmp_path, "tests.connect.crashing_jms")
    sent = 0
    try:
        driver.start()
        for _ in range(sample_size(2, 10)):
            mq.send("crashing", "text", 200, sent)
            wanted = sent + random.randrange(1, 150)
            sent += 200

            def has_come(wanted: int = wanted) -> bool:
                driver.check()
                return count_records(broker, "crashing") >= wanted

            wait_until(has_come)
            driver.kill()
            driver.start()
        wait_until(lambda: count_records(broker, "crashing") >= sent)
    finally:
        driver.kill()
    found = Counter(each["value"] for each in read_records(broker, "crashing"))
    assert len(found) == sum(found.values()) == sent


def test_a_durable_subscription(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    """What is sent to the topic while no worker runs comes later, and a selector chooses."""
    settings = make_settings(
        mq,
        jms_destination_name="news",
        jms_destination_type="topic",
        jms_subscription_durable="true",
        jms_subscription_name="ottla",
        jms_message_selector="colour = 'blue:green'",
        kafka_topic="news",
        value_converter=JSON,
    )

    def list_late() -> list[str]:
        texts = [each["text"] for each in read_values(broker, "news")]
        return sorted(each for each in texts if int(each.split()[1]) >= 1000)

    def has_subscribed() -> bool:
        mq.send("topic:news", "text", 1)
        return count_records(broker, "news") > 0

    with running(spark, broker, ActiveMQSource, "jms-durable", **settings):
        wait_until(has_subscribed)
    for number in range(1, 3):
        mq.send("topic:news", "text", 5, 995 + 5 * number)
        with running(spark, broker, ActiveMQSource, "jms-durable", **settings) as source:
            wait_until(lambda number=number: len(list_late()) >= 5 * number, lambda source=source: source.status)  # type: ignore[misc]
    assert list_late() == [f"text {n} ü 😀" for n in range(1000, 1010)]


def test_records_become_messages(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    """The documented configuration, as a JMS client receives it."""
    broker.create_topic("orders-sink")
    send(
        broker,
        "orders-sink",
        [{"key": f"k{n}", "value": json.dumps({"n": n, "s": "ü😀"}), "partition": 0} for n in range(30)],
    )
    with running(
        spark, broker, ActiveMQSink, "jms-sink", **make_settings(mq, "outgoing-orders", topics="orders-sink")
    ) as sink:
        wait_until(lambda: sum(read_group(broker, "jms-sink").values()) == 30, lambda: sink.status)
    found = mq.take("shipped", 30)
    for n, line in enumerate(found):
        kind, body, *more = line.split(" ")
        assert (kind, json.loads(base64.b64decode(body))) == ("text", {"n": n, "s": "ü😀"})
        assert more == [
            *("mode=2", "priority=4", "correlation=null", "expires=false"),
            *(f"KAFKA_OFFSET={n}", "KAFKA_PARTITION=0", "KAFKA_TOPIC=orders-sink"),
        ]


@pytest.mark.parametrize(
    ("format", "expected"),
    [("bytes", f"bytes {base64.b64encode(b'abc').decode()}"), ("string", f"text {base64.b64encode(b'abc').decode()}")],
)
def test_formats_of_messages(
    spark: "SparkSession", broker: LocalBroker, mq: JmsBroker, format: str, expected: str
) -> None:
    broker.create_topic(f"texts-{format}")
    send(broker, f"texts-{format}", [{"key": "k", "value": "abc", "partition": 0}])
    settings = make_settings(
        mq,
        topics=f"texts-{format}",
        jms_destination_name="out",
        jms_message_format=format,
        jms_forward_kafka_key="true",
        jms_producer_priority=7,
        jms_producer_time_to_live_ms=3_600_000,
        jms_producer_delivery_mode="non_persistent",
    )
    with running(spark, broker, ActiveMQSink, f"jms-{format}", **settings) as sink:
        wait_until(lambda: bool(read_group(broker, f"jms-{format}")), lambda: sink.status)
    assert mq.take("out", 1) == [f"{expected} mode=1 priority=7 correlation=k expires=true"]


def test_map_messages(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    broker.create_topic("maps")
    send(broker, "maps", [{"key": "k", "value": '{"a":"x","b":5,"c":true,"d":0.5}', "partition": 0}])
    settings = make_settings(
        mq,
        topics="maps",
        jms_destination_name="maps",
        jms_message_format="map",
        value_converter=JSON,
        value_converter_schemas_enable="false",
    )
    with running(spark, broker, ActiveMQSink, "jms-maps", **settings) as sink:
        wait_until(lambda: bool(read_group(broker, "jms-maps")), lambda: sink.status)
    [line] = mq.take("maps", 1)
    assert line.startswith("map a=String:x,b=Integer:5,c=Boolean:true,d=Double:0.5 ")


def test_a_password_that_is_wrong(spark: "SparkSession", broker: LocalBroker, mq: JmsBroker) -> None:
    """The connector fails with the broker's words, and without the password."""
    settings = make_settings(mq, jms_destination_name="q", kafka_topic="t", activemq_password="not-hush-hush")
    with running(spark, broker, ActiveMQSource, "jms-refused", **settings) as source:
        wait_until(lambda: source.status is not None and source.status.connector.state is State.FAILED)
        assert source.status is not None
        assert "User name [ottla] or password is invalid" in (source.status.connector.trace or "")
        assert "hush" not in str(source.status)
