"""Apache Kafka's own reader of segments on what compaction writes."""

import re
from pathlib import Path

import pytest

from benchmarks.peers.apache_kafka import run_tool
from ottla.records import batch
from ottla.storage.files import RealDisk
from ottla.storage.log import Log
from ottla.storage.opening import create_log
from tests.unit.storage.cleaner.compactions import SETTINGS, compact, end_transaction, pairs, put, stored
from tests.unit.storage.logs import NOW, TOPIC_ID, append

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DAY = 86_400_000
COMPLAINTS = ("isvalid: false", "Mismatches", "mismatch", "out of order", "Index timestamp", "corrupt")


pytestmark = pytest.mark.usefixtures("kafka_tools")


def compacted(directory: Path) -> Log:
    """A directory with everything that compaction writes: gaps, compressed and empty batches, delete horizons, markers
    with and without one."""
    disk = RealDisk()
    log = create_log(disk, str(directory), TOPIC_ID, SETTINGS, NOW)
    for codec in range(5):
        append(log, pairs(*((f"k{number}", f"{codec}" * 20) for number in range(codec, 9)), codec=codec))
    append(log, pairs(("k1", "last"), ("k2", "last"), producer_id=5, sequence=0))
    append(log, pairs(("x", "aborted"), producer_id=7, sequence=0, transactional=True))
    end_transaction(log, 7, commit=False)
    append(log, pairs(("y", "committed"), producer_id=8, sequence=0, transactional=True))
    end_transaction(log, 8, commit=True)
    put(log, ("k1", None), ("k2", "new"), ("y", "new"))
    compact(disk, log, delete_retention_ms=DAY)
    put(log, ("z", "1"))
    compact(disk, log, delete_retention_ms=DAY, segment_bytes=5000)
    log.close()
    return log


def test_kafkas_own_tool_reads_what_compaction_wrote(tmp_path: Path) -> None:
    # Kafka reads every record that we read, with its offset, time and key. Checksums and indexes are right.
    log = compacted(tmp_path / "orders-0")
    found = stored(log)
    assert any(header.has_delete_horizon for header, _ in found) and any(not header.record_count for header, _ in found)
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [path for suffix in suffixes for path in sorted((tmp_path / "orders-0").glob(f"*{suffix}"))]
    told = run_tool(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files)))
    for complaint in COMPLAINTS:
        assert complaint not in told, told[-3000:]
    seen = re.findall(r" offset: (\d+) CreateTime: (\d+) .*?(?:key: (\S+)|endTxnMarker)", told)
    assert seen == [
        (str(record.offset), str(record.timestamp), key_of(header, record))
        for header, records in found
        for record in records
    ]
    assert f"deleteHorizonMs: OptionalLong[{NOW + DAY}]" in told


def key_of(header: batch.BatchHeader, record: batch.Record) -> str:
    return "" if header.is_control else (record.key or b"").decode()
