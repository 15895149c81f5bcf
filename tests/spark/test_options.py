"""Options: the meaning of each, and one clear line for each that is wrong."""

import pytest

from ottla.client.client import EARLIEST, LATEST, READ_COMMITTED
from ottla.topic_partition import TopicPartition
from pyspark_ottla.boundaries import Boundary, OptionError, offsets_from_json, offsets_to_json
from pyspark_ottla.column_options import parse_column_options
from pyspark_ottla.options import ReadOptions, parse_read_options, parse_write_options
from pyspark_ottla.shapes import make_shape

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def batch(**options: str) -> ReadOptions:
    return parse_read_options({**BASE, "subscribe": "orders", **options}, streaming=False)


def stream(**options: str) -> ReadOptions:
    return parse_read_options({**BASE, "subscribe": "orders", **options}, streaming=True)


def test_defaults_are_those_of_the_stock_connector() -> None:
    """A batch reads everything, a stream what comes from now on."""
    assert batch().starting == Boundary("startingOffsets", EARLIEST)
    assert batch().ending == Boundary("endingOffsets", LATEST)
    assert stream().starting == Boundary("startingOffsets", LATEST)
    assert batch().fail_on_data_loss and batch().isolation == 0
    assert stream().max_delay_s == 900


def test_option_names_ignore_case() -> None:
    """Spark passes names in lower case, and startingOffsets must be found all the same."""
    found = stream(startingoffsets="earliest", FAILONDATALOSS="False")
    assert found.starting.everywhere == EARLIEST
    assert not found.fail_on_data_loss


def test_times_take_precedence_over_offsets() -> None:
    found = batch(startingOffsets="earliest", startingTimestamp="17", endingOffsetsByTimestamp='{"orders": {"0": 5}}')
    assert found.starting == Boundary("startingTimestamp", 17, by_time=True)
    assert found.ending.each == {TopicPartition("orders", 0): 5}
    assert found.ending.by_time


def test_every_option_is_parsed() -> None:
    found = stream(
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.group.id": "g",
            "startingOffsets": "group",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2s",
            "minPartitions": "7",
            "maxRecordsPerPartition": "1000",
        }
    )
    assert found.isolation == READ_COMMITTED
    assert found.starting.of_group and found.group == "g"
    assert found[8:] == (100, 10, 2.0, 7, 1000)


@pytest.mark.parametrize(
    ("options", "streaming", "said"),
    [
        ({"subscribe": ""}, False, "subscribe: no topic is named"),
        ({"subscribePattern": "x.*"}, False, "subscribe and subscribePattern are"),
        ({"startingOffsets": "latest"}, False, "startingOffsets: 'latest'"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, False, "-1"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, True, "-3 for orders-0"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, True, "'x' of 'orders' is no partition"),
        ({"startingOffsets": '{"orders": 3}'}, True, "'orders' needs an object"),
        ({"startingOffsets": "soon"}, True, "'soon' is not JSON"),
        ({"startingOffsets": "[" * 100_000}, True, "is not JSON"),
        ({"startingOffsets": "group"}, True, "needs kafka.group.id"),
        ({"startingTimestamp": "yesterday"}, True, "startingTimestamp: 'yesterday'"),
        ({"endingOffsets": "latest"}, True, "endingOffsets: a streaming query has no end"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets: 'earliest'"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, False, "-2"),
        ({"maxOffsetsPerTrigger": "0"}, True, "maxOffsetsPerTrigger: '0'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, True, "minOffsetsPerTrigger: 6 is above"),
        ({"maxTriggerDelay": "long"}, True, "maxTriggerDelay: 'long'"),
        ({"minPartitions": "many"}, True, "minPartitions: 'many'"),
        ({"failOnDataLoss": "maybe"}, True, "failOnDataLoss: 'maybe'"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, True, "startingOffsetsByTimestampStrategy: 'guess'"),
        ({"kafka.isolation.level": "strict"}, True, "kafka.isolation.level: 'strict'"),
        ({"kafka.auto.offset.reset": "latest"}, True, "kafka.auto.offset.reset: it cannot be set; use the option"),
        ({"kafka.bootstrap.servers": "nowhere"}, True, "kafka.bootstrap.servers: 'nowhere' is not host:port"),
        ({"kafka.bootstrap.servers": ""}, True, "kafka.bootstrap.servers: it must be set"),
        ({"startingOfsets": "earliest"}, True, "startingofsets: there is no such option"),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(options: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_read_options({**BASE, "subscribe": "orders", **options}, streaming=streaming)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrong_option_of_a_write_is_reported_in_one_line() -> None:
    for options, said in (
        ({"topic": " "}, "topic: it names no topic"),
        ({"guarantee": "twice"}, "guarantee: 'twice'"),
        ({"kafka.transactional.id": "mine"}, "kafka.transactional.id: it cannot be set"),
        ({"tpoic": "x"}, "tpoic: there is no such option"),
    ):
        with pytest.raises(OptionError, match=said):
            parse_write_options({**BASE, **options})


def test_assignments_are_read() -> None:
    found = parse_read_options({**BASE, "assign": '{"b": [1, 0], "a": [2]}'}, streaming=True)
    assert [str(where) for where in found.selection.assigned] == ["a-2", "b-0", "b-1"]
    with pytest.raises(OptionError, match="needs a list of partitions"):
        parse_read_options({**BASE, "assign": '{"b": 1}'}, streaming=True)


def test_given_offsets_must_cover_all_partitions() -> None:
    boundary = stream(startingOffsets='{"orders": {"0": 23}}').starting
    zero, one = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert boundary.covering([zero]) == {zero: 23}
    with pytest.raises(OptionError, match="missing: orders-1"):
        boundary.covering([zero, one])
    with pytest.raises(OptionError, match="orders-0 is not among"):
        boundary.covering([])


def test_offsets_have_the_shape_of_the_stock_connector() -> None:
    """A person can read a checkpoint, and partitions are in order."""
    text = offsets_to_json({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})
    assert list(text.items()) == [("a", {"0": 3}), ("b", {"9": 2, "10": 1})]
    assert offsets_to_json(offsets_from_json(text)) == text


def columns(**options: str) -> list[str]:
    return list(make_shape(parse_column_options({**BASE, "subscribe": "orders", **options}), {}).schema.names)


def test_columns_can_be_chosen() -> None:
    assert "headers" not in columns()
    assert columns(includeHeaders="true")[-1] == "headers"
    assert columns(columns="value, offset") == ["value", "offset"]
    with pytest.raises(OptionError, match="there is no column 'size'"):
        columns(columns="size")
    with pytest.raises(OptionError, match="twice"):
        columns(columns="key,key")
