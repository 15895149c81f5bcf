"""The kernels of compaction: a known hash, and machine code that gives the results of the Python code."""

from random import Random
from typing import Any

import pytest

from ottla.records import batch
from ottla.records.record import Record, read_records
from ottla.storage.cleaner.kernels import (
    BROKEN,
    FULL,
    GROWTH_MAX,
    SOUND,
    WORDS,
    Kernels,
    _hash,
    compiled_kernels,
    python_kernels,
)

SEED = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
SLOTS = 64


@pytest.fixture(scope="module", params=["python", "machine code"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return python_kernels() if request.param == "python" else compiled_kernels()


def body_of(*rows: tuple[bytes | None, bytes | None, int]) -> bytes:
    headers = [("name", b"value")]
    return bytes(batch.encode([(key, value, headers, time) for key, value, time in rows])[batch.HEADER_SIZE :])


def hex_of(data: bytes) -> str:
    low, high = _hash(data, 0, len(data), *SEED)
    return (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex()


def test_the_hash_is_siphash_as_published() -> None:
    # The first two and the last of the reference vectors of SipHash-2-4 with 128 bits.
    assert hex_of(b"") == "a3817f04ba25a8e66df67214c7550293"
    assert hex_of(b"\0") == "da87c1d86b99af44347659119b22fc45"
    assert hex_of(bytes(range(63))) == "5150d1772f50834a503e069a973fbd7c"


def test_records_are_indexed_judged_and_copied(kernels: Kernels) -> None:
    body = body_of((b"a", b"1", 10), (b"b", None, 11), (b"a", b"2", 12), (None, b"x", 13), (b"", b"3", 9))
    records, table = kernels.view(body), kernels.table(WORDS * SLOTS)
    assert kernels.index_keys(records, 5, 100, 0, table, 0, SLOTS - 1, *SEED) == (SOUND, -1, 3)
    kept = kernels.room(5)
    assert kernels.judge(records, 5, 100, 104, table, 10, True, *SEED, kept) == (SOUND, 3, 1, 1, 9, 12)
    assert list(kept) == [0, 1, 1, 0, 1]
    assert kernels.judge(records, 5, 100, 104, table, 10, False, *SEED, kept)[1] == 2
    assert kernels.judge(records, 5, 100, 102, table, 10, True, *SEED, kept)[1] == 4  # two records are after the map
    kept[:] = kernels.view(b"\0\1\1\0\1")
    for shift in (0, 5, -(1 << 40), 1 << 62):
        output = kernels.room(len(body) + 5 * GROWTH_MAX)
        size = kernels.copy(records, 5, kept, shift, output)
        headers = (("name", b"value"),)
        assert read_records(bytes(output[:size]), 3, 100, 10 - shift, None) == [
            Record(101, 11, b"b", None, headers),
            Record(102, 12, b"a", b"2", headers),
            Record(104, 9, b"", b"3", headers),
        ]


def test_a_full_table_accepts_keys_that_it_has(kernels: Kernels) -> None:
    body = body_of((b"a", b"1", 0), (b"b", b"1", 0), (b"a", b"2", 0), (b"c", b"1", 0), (b"b", b"2", 0))
    table = kernels.table(WORDS * 3)
    assert kernels.index_keys(kernels.view(body), 5, 0, 0, table, 0, 2, *SEED) == (FULL, 3, 2)


def test_offsets_before_the_dirty_part_are_not_indexed(kernels: Kernels) -> None:
    body = body_of((b"a", b"1", 0), (b"b", b"1", 0))
    assert kernels.index_keys(kernels.view(body), 2, 10, 11, kernels.table(WORDS * 4), 0, 3, *SEED)[2] == 1


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_records_is_noticed(kernels: Kernels, count: int) -> None:
    body, table = kernels.view(body_of((b"a", b"1", 0), (b"b", b"1", 0))), kernels.table(WORDS * 8)
    assert kernels.index_keys(body, count, 0, 0, table, 0, 7, *SEED)[0] == BROKEN
    assert kernels.judge(body, count, 0, 9, table, 0, True, *SEED, kernels.room(3))[0] == BROKEN


def outcome(kernels: Kernels, body: bytes, count: int) -> list[Any]:
    records, table, kept = kernels.view(body), kernels.table(WORDS * SLOTS), kernels.room(count)
    indexed = kernels.index_keys(records, count, 7, 9, table, 0, 20, *SEED)
    judged = kernels.judge(records, count, 7, 7 + count // 2, table, 0, count % 2 == 0, *SEED, kept)
    found = [tuple(map(int, indexed)), tuple(map(int, judged)), [int(word) for word in table]]
    if judged[0] == SOUND:
        for shift in (0, 12345):
            output = kernels.room(len(body) + count * GROWTH_MAX)
            found.append(bytes(output[: kernels.copy(records, count, kept, shift, output)]))
    return found


def test_machine_code_and_python_do_the_same_to_any_bytes() -> None:
    random = Random(5)
    for _ in range(300):
        count = random.randint(1, 30)
        rows = [
            (
                random.choice([None, b"", random.randbytes(random.randint(0, 20)), b"k%d" % random.randint(0, 9)]),
                random.choice([None, random.randbytes(random.randint(0, 200))]),
                random.randint(-5, 1 << 41),
            )
            for _ in range(count)
        ]
        body = bytearray(body_of(*rows))
        for _ in range(random.choice((0, 0, 1, 3))):
            body[random.randrange(len(body))] = random.randrange(256)
        assert outcome(python_kernels(), bytes(body), count) == outcome(compiled_kernels(), bytes(body), count)
