"""Files of partitions that Kafka's tools read: what is wrong with one is said in the words of the file."""

from pathlib import Path

import pytest

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.plan_files import read_partitions
from ottla.topic_partition import TopicPartition


def test_entries_are_found_by_their_partitions(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    file.write_text('{"partitions": [{"topic": "t", "partition": 2, "offset": -1}], "version": 1}')
    assert read_partitions(str(file), "offset")[TopicPartition("t", 2)]["offset"] == -1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "not UTF-8 text"),
        (b"{", "not JSON"),
        (b'{"partitions": {}}', 'there is no list "partitions"'),
        (b'{"partitions": [], "version": "1"}', "version '1' is not known, only 1"),
        (b'{"partitions": [{"topic": "t", "partition": 99999999999, "offset": 0}]}', "names no partition from 0 to"),
        (b'{"partitions": [{"topic": "t", "partition": -1, "offset": 0}]}', "names no partition from 0 to"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "offset": true}]}', "has no number 'offset'"),
    ],
)
def test_what_is_wrong_is_a_usage_error(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "offsets"
    file.write_bytes(content)
    with pytest.raises(CommandError) as refused:
        read_partitions(str(file), "offset")
    assert str(refused.value).startswith(f"{file}: ") and said in str(refused.value)
    assert refused.value.status == USAGE_ERROR
