"""`ottla log verify`: every change in a data directory is found, and derived files can be rebuilt."""

import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.cli import main
from ottla.records import batch
from ottla.storage.directories import DataDirectory, DirectoryIdentity, encode_checkpoint, encode_identity
from ottla.storage.files import RealDisk
from ottla.storage.index import OffsetIndex
from ottla.storage.log import LogSettings
from ottla.storage.opening import create_log, open_log
from ottla.topic_partition import TopicPartition
from tests.unit.storage.logs import NOW, TOPIC_ID, append, batch_of, records

PARTITION = "orders-0"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments with indexes, two leader epochs, an idempotent producer and aborted transactions."""
    home = tmp_path_factory.mktemp("sound") / "data"
    disk = RealDisk()
    disk.make_directory(str(home))
    log = create_log(disk, str(home / PARTITION), TOPIC_ID, LogSettings(index_interval_bytes=256), NOW)
    for part in range(3):
        for number in range(20):
            append(log, batch_of(b"value" * 10, timestamp=NOW + 1000 * part + number), leader_epoch=part)
        append(log, batch_of(b"lost", producer_id=7, sequence=part, transactional=True), leader_epoch=part)
        append(log, batch.encode_control(7, 0, False, 5, NOW), leader_epoch=part)
        if part < 2:
            log.roll(NOW)
    end = log.end_offset
    log.close()
    (home / "meta.properties").write_bytes(encode_identity(DirectoryIdentity("a-cluster", 1, bytes(16))))
    (home / "recovery-point-offset-checkpoint").write_bytes(encode_checkpoint({TopicPartition("orders", 0): end}))
    return home


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


def verify(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> dict[str, Any]:
    """Run the command, and check its status. Returns its report from JSON."""
    status = main(["log", "verify", "--format", "json", *options, str(path)])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert status == bool(report["problems"])
    return report


def problem_files(report: dict[str, Any]) -> set[str]:
    return {problem["path"].rpartition("/")[2] for problem in report["problems"]}


def files_of(path: Path) -> Iterator[Path]:
    yield from sorted(file for file in path.rglob("*") if file.is_file())


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in files_of(path)}


def read_back(data: Path) -> list[batch.Record]:
    log = open_log(
        RealDisk(), str(data / PARTITION), LogSettings(), clean=True, recovery_point=0, log_start_offset=0, now_ms=NOW
    )
    found = records(log)
    log.abandon()
    return found


def test_a_sound_directory_has_no_problems_and_is_not_changed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(data)
    report = verify(capsys, data)
    assert (report["partitions"], report["segments"], report["records"]) == (1, 3, 66)
    assert report["problems"] == []
    assert contents(data) == before


def test_a_valid_directory_is_reported_in_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(data)]) == 0
    assert capsys.readouterr().out == f"1 partition, 3 segments, 66 records, {size_of(data):.1f} MB: no damage\n"


def size_of(data: Path) -> float:
    return sum(file.stat().st_size for file in data.rglob("*.log")) / 1e6


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_that_is_cut_short_is_found(data: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    for file in sorted((data / PARTITION).glob(f"*{suffix}"))[:1]:
        file.write_bytes(file.read_bytes()[:-3])
        assert file.name in problem_files(verify(capsys, data))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint"])
def test_derived_files_are_rebuilt(data: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_back(data)
    originals = contents(data)
    for file in (data / PARTITION).glob(f"*{suffix}"):
        file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))
    assert verify(capsys, data)["problems"]
    report = verify(capsys, data, "--repair")
    assert report["problems"] == []
    assert report["repaired"]
    assert verify(capsys, data)["problems"] == []
    assert read_back(data) == before
    if suffix == ".txnindex":
        assert {name: part for name, part in contents(data).items() if name.endswith(suffix)} == {
            name: part for name, part in originals.items() if name.endswith(suffix)
        }


def test_a_lost_transaction_index_is_found_and_rebuilt(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Without the index a read_committed consumer would see aborted records.
    lost = sorted((data / PARTITION).glob("*.txnindex"))[0]
    original = lost.read_bytes()
    lost.unlink()
    assert problem_files(verify(capsys, data)) == {lost.name}
    assert verify(capsys, data, "--repair")["problems"] == []
    assert lost.read_bytes() == original


def test_a_torn_end_is_cut_off_and_nothing_else(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_back(data)
    last = sorted((data / PARTITION).glob("*.log"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole + whole[:40])
    assert problem_files(verify(capsys, data)) == {last.name}
    assert verify(capsys, data, "--repair")["problems"] == []
    assert last.read_bytes() == whole
    assert read_back(data) == before


def test_damage_in_the_middle_is_reported_and_left_alone(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The records after the damage were acknowledged, so no repair removes them.
    first = sorted((data / PARTITION).glob("*.log"))[0]
    changed = bytearray(first.read_bytes())
    changed[200] ^= 1
    first.write_bytes(changed)
    report = verify(capsys, data, "--repair")
    assert problem_files(report) == {first.name}
    assert "damaged" in report["problems"][0]["reason"]
    assert first.read_bytes() == changed


def test_a_batch_with_a_wrong_offset_is_reported_and_nothing_is_cut_off(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The checksum does not cover the offset. One that is too large makes all valid batches after it look out of order.
    last = sorted((data / PARTITION).glob("*.log"))[-1]
    changed = bytearray(last.read_bytes())
    second = next(itertools.islice(batch.headers(changed), 1, None))[0]
    changed[second + 4] ^= 1
    last.write_bytes(changed)
    report = verify(capsys, data, "--repair")
    assert [problem["reason"] for problem in report["problems"]] == [
        f"offset {(1 << 24) + 45} at byte {second}, and offset 46 after it"
    ]
    assert report["records"] == 65
    assert last.read_bytes() == changed


def test_a_last_batch_that_was_flushed_and_damaged_is_not_cut_off(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The batch was acknowledged, and a person may still recover a part of it.
    last = sorted((data / PARTITION).glob("*.log"))[-1]
    changed = bytearray(last.read_bytes())
    changed[-1] ^= 1
    last.write_bytes(changed)
    assert verify(capsys, data, "--repair")["problems"]
    assert last.read_bytes() == changed


def test_a_gap_is_reported_unless_the_log_was_compacted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A compacted log has gaps. In another log a gap may be damage, or be left from a time when the log was compacted.
    first = sorted((data / PARTITION).glob("*.log"))[0]
    whole = first.read_bytes()
    (start, _), (end, _) = itertools.islice(batch.headers(whole), 3, 5)
    first.write_bytes(whole[:start] + whole[end:])
    for file in (data / PARTITION).glob("*index"):
        file.unlink()
    verify(capsys, data, "--repair")
    report = verify(capsys, data)
    assert report["problems"] == []
    reason = "offsets 3 to 3 are not there, and nothing says that it was compacted"
    assert report["notices"] == [{"path": str(first), "reason": reason}]
    assert main(["log", "verify", str(data)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{first}: {reason} (notice)",
        f"1 partition, 3 segments, 65 records, {size_of(data):.1f} MB: no damage, 1 notice",
    ]
    (data / "cleaner-offset-checkpoint").write_bytes(encode_checkpoint({TopicPartition("orders", 0): 22}))
    assert verify(capsys, data)["notices"] == []


def test_an_epoch_that_goes_back_does_not_change_the_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A repair would rebuild the file from the batches, and one of them is wrong.
    first = sorted((data / PARTITION).glob("*.log"))[0]
    epochs = (data / PARTITION / "leader-epoch-checkpoint").read_bytes()
    changed = bytearray(first.read_bytes())
    changed[12] ^= 1
    first.write_bytes(changed)
    report = verify(capsys, data, "--repair")
    assert [(problem["reason"], problem["repairable"]) for problem in report["problems"]] == [
        (f"offset 1 is of leader epoch 0, offset 0 before it of {1 << 24}", False)
    ]
    assert (data / PARTITION / "leader-epoch-checkpoint").read_bytes() == epochs


def test_an_index_of_an_older_kafka_is_sound(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A follower of an older Kafka appends several batches at once, with one entry: the last offset of all, and the
    # position of the first.
    first = sorted((data / PARTITION).glob("*.index"))[0]
    index = OffsetIndex.decode(first.read_bytes())
    index.offsets[1] += 1
    first.write_bytes(index.encode())
    assert verify(capsys, data)["problems"] == []
    index.offsets[1] = index.offsets[2]
    first.write_bytes(index.encode())
    assert problem_files(verify(capsys, data)) == {first.name}


def test_flushed_records_that_are_gone_are_reported(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in sorted((data / PARTITION).iterdir())[-20:]:
        if file.name.startswith("00000000000000000044"):
            file.unlink()
    assert "recovery-point-offset-checkpoint" in problem_files(verify(capsys, data))


def test_a_directory_in_use_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = DataDirectory.open(RealDisk(), str(data))
    try:
        assert main(["log", "verify", str(data)]) == 1
    finally:
        held.close(clean=False)
    assert capsys.readouterr().err == f"ottla: {data} is in use by another process; stop the broker first\n"


def test_a_directory_that_is_no_data_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(tmp_path)]) == 1
    assert "is no data directory" in capsys.readouterr().err
    assert main(["log", "verify", str(tmp_path / "away")]) == 1
    assert capsys.readouterr().err == f"ottla: {tmp_path / 'away'}: No such file or directory\n"


def test_one_partition_can_be_verified(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(capsys, data / PARTITION)["partitions"] == 1
