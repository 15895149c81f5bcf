"""`ottla log dump` on files that a log wrote: every kind of file is shown, damage is found, nothing is changed."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from ottla.records import batch
from ottla.storage.directories import encode_checkpoint
from ottla.storage.files import RealDisk
from ottla.storage.log import LogSettings
from ottla.storage.opening import create_log
from ottla.topic_partition import TopicPartition
from tests.unit.storage.logs import NOW, TOPIC_ID, append, batch_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with one partition: plain, idempotent and compressed batches, and an aborted transaction."""
    disk = RealDisk()
    partition = tmp_path / "data" / "orders-0"
    log = create_log(disk, str(partition), TOPIC_ID, LogSettings(), NOW)
    append(log, batch_of(b"one", b"two", timestamp=NOW))
    records = [(b"k" * 50, None, (("h", b"\xff"),), NOW + 10)] * 3
    append(log, batch.encode(records, codec=1), leader_epoch=3)
    append(log, batch_of(b"\xfe", producer_id=7, sequence=0, transactional=True), leader_epoch=3)
    append(log, batch.encode_control(7, 0, False, 5, NOW + 20), leader_epoch=3)
    log.close()
    offsets = {TopicPartition("orders", 0): 7, TopicPartition("orders", 12): 0}
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_bytes(encode_checkpoint(offsets))
    (tmp_path / "data" / "something.else").write_bytes(b"not ours")
    return tmp_path / "data"


def dump(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, status: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """Run the command, and return its entries from JSON, grouped by kind."""
    assert main(["log", "dump", "--format", "json", *map(str, arguments)]) == status
    kinds = defaultdict(list)
    for line in capsys.readouterr().out.splitlines():
        entry = json.loads(line)
        kinds[entry.pop("kind")].append(entry)
    return kinds


def without_file(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if name != "file"} for entry in entries]


def test_batches_are_shown_with_their_headers(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = dump(capsys, data / "orders-0")["batch"]
    assert [(entry["first_offset"], entry["last_offset"], entry["records"]) for entry in batches] == [
        (0, 1, 2),
        (2, 4, 3),
        (5, 5, 1),
        (6, 6, 1),
    ]
    assert [entry["codec"] for entry in batches] == ["none", "gzip", "none", "none"]
    assert [entry["leader_epoch"] for entry in batches] == [0, 3, 3, 3]
    assert batches[1]["position"] == batches[0]["size"]
    assert (batches[2]["producer_id"], batches[2]["sequence"], batches[2]["transactional"]) == (7, 0, True)
    assert (batches[3]["control"], batches[3]["coordinator_epoch"]) == ("abort", 5)


def test_records_are_shown_on_request(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "record" not in dump(capsys, data)
    records = without_file(dump(capsys, "--records", data)["record"])
    assert records[1] == {"offset": 1, "timestamp": NOW + 1, "key": None, "value": "two", "headers": []}
    assert records[4] == {
        "offset": 4,
        "timestamp": NOW + 10,
        "key": "k" * 50,
        "value": None,
        "headers": [["h", {"base64": "/w=="}]],
    }
    assert records[5]["value"] == {"base64": "/g=="}


def test_every_other_kind_of_file_is_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # This includes the files beside the segment, and the checkpoint of the data directory. A foreign file is left out.
    found = dump(capsys, data)
    assert without_file(found["leader-epoch"]) == [{"epoch": 0, "start_offset": 0}, {"epoch": 3, "start_offset": 2}]
    (aborted,) = without_file(found["aborted-transaction"])
    assert aborted == {"producer_id": 7, "first_offset": 5, "last_offset": 6, "last_stable_offset": 7}
    (producer,) = without_file(found["producer"])
    assert (producer["producer_id"], producer["last_offset"], producer["transaction_start"]) == (7, 5, -1)
    assert without_file(found["time-index"])[-1] == {"timestamp": NOW + 20, "offset": 6}
    assert without_file(found["checkpoint"]) == [
        {"topic": "orders", "partition": 0, "offset": 7},
        {"topic": "orders", "partition": 12, "offset": 0},
    ]
    assert {entry["file"].rpartition("/")[2] for entry in found["properties"]} == {"partition.metadata"}


def test_an_index_padded_with_zeros_ends_with_its_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Apache Kafka pads the index of its active segment so. Offsets are absolute, not relative to the segment.
    index = tmp_path / "00000000000000000100.index"
    index.write_bytes(bytes.fromhex("00000005 00000010") + bytes(80))
    times = tmp_path / "00000000000000000100.timeindex"
    times.write_bytes(bytes.fromhex("0000000000000100 00000005") + bytes(120))
    found = dump(capsys, index, times)
    assert without_file(found["offset-index"]) == [{"offset": 105, "position": 16}]
    assert without_file(found["time-index"]) == [{"timestamp": 256, "offset": 105}]


def test_damage_is_found_and_the_rest_is_still_shown(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The status is 1, the entry says where the damage is, and the files after the damaged one follow.
    segment = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(segment.read_bytes())
    second = dump(capsys, segment)["batch"][1]
    content[second["position"] + 70] ^= 1
    segment.write_bytes(content)
    found = dump(capsys, data, status=1)
    assert [entry["first_offset"] for entry in found["batch"]] == [0]
    assert f"at byte {second['position']} of {len(content)}" in found["damage"][0]["reason"]
    assert found["leader-epoch"]


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "00000000000000000007.snapshot"])
def test_a_cut_file_is_damage_too(name: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = data / "orders-0" / name
    path.write_bytes(path.read_bytes()[:-3])
    (damage,) = dump(capsys, path, status=1)["damage"]
    assert damage["file"] == str(path)


def test_the_text_output_is_readable(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "--records", str(data)]) == 0
    text = capsys.readouterr().out
    assert f"\n{data}/orders-0/00000000000000000000.log\n  batch first_offset=0 last_offset=1 records=2 " in text
    assert '\n    record offset=1 timestamp=1700000000001 key=null value="two" headers=[]\n' in text
    assert "headers=[h=b'\\xff']\n" in text


def test_nothing_is_changed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    dump(capsys, "--records", data)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(("name", "reason"), [("nowhere", "No such file"), ("something.else", "no broker writes")])
def test_a_file_that_no_broker_writes_is_refused(
    name: str, reason: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "dump", str(data / name)]) == 1
    assert f"ottla: {data / name}: {reason}" in capsys.readouterr().err
