"""The survey of a batch's records: what it finds, and that Python and machine code agree on any bytes."""

import subprocess
import sys
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records.columns import (
    BEGIN,
    MISSING,
    NO_KEY,
    OFFSET,
    SOUND,
    STRUCTURE,
    SURPLUS,
    TIME,
    TIME_MAX,
    TIME_MIN,
    Bounds,
    Survey,
    Surveyor,
    compile_survey,
    is_plain_record,
    survey,
)
from ottla.records.compression import CorruptBatch
from ottla.records.record import Headers, encode_varint, read_records, write_record

PYTHON, NATIVE = "python", "native"
ANY_TIME = Bounds()


@pytest.fixture(params=[PYTHON, NATIVE])
def surveyor(request: pytest.FixtureRequest) -> Surveyor:
    return survey if request.param == PYTHON else compile_survey()


def record(
    offset: int = 0, time: int = 0, key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = ()
) -> bytes:
    target = bytearray()
    write_record(target, time, offset, key, value, headers)
    return bytes(target)


def framed(content: bytes, length: int | None = None) -> bytes:
    """A record of these bytes with its length, or with another length."""
    return encode_varint(len(content) if length is None else length) + content


def built(
    time: bytes = b"\0", offset: bytes = b"\0", key: bytes = b"\1", value: bytes = b"\1", headers: bytes = b"\0"
) -> bytes:
    """A record built from the encoded fields."""
    return framed(b"\0" + time + offset + key + value + headers)


def test_valid_records_are_accepted_with_the_largest_timestamp(surveyor: Surveyor) -> None:
    data = record(0, 5) + record(1, 70_000, None, None) + record(2, -3, b"", b"", [("a", b"1"), ("", None)])
    assert surveyor(data, 3, Bounds(1_000), BEGIN) == Survey(SOUND, 3, len(data), 71_000, -1)


def test_every_kind_of_buffer_is_accepted(surveyor: Surveyor) -> None:
    data = record() + record(1)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(b"x" + data))[1:]):
        assert surveyor(buffer, 2, ANY_TIME, BEGIN).verdict == SOUND


@pytest.mark.parametrize(
    ("data", "count", "verdict"),
    [
        pytest.param(b"", 1, MISSING, id="nothing"),
        pytest.param(record(), 2, MISSING, id="one of two"),
        pytest.param(record() + record(1), 1, SURPLUS, id="two of one"),
        pytest.param(record() + b"\0", 1, SURPLUS, id="a byte too many"),
        pytest.param(record() + record(2), 2, OFFSET, id="an offset left out"),
        pytest.param(record() + record(0), 2, OFFSET, id="an offset twice"),
        pytest.param(record(1) + record(0), 2, OFFSET, id="offsets the other way round"),
        pytest.param(record(-1), 1, OFFSET, id="an offset below zero"),
        pytest.param(record()[:-1], 1, STRUCTURE, id="cut off"),
        pytest.param(b"\x80", 1, STRUCTURE, id="cut off in the length"),
        pytest.param(framed(record()[1:], len(record()) - 2), 1, STRUCTURE, id="a length too small"),
        pytest.param(framed(record()[1:] + b"\0", len(record())), 1, STRUCTURE, id="a length too large"),
        pytest.param(framed(record()[1:], -1), 1, STRUCTURE, id="a length below zero"),
        pytest.param(framed(b"\0" * 5), 1, STRUCTURE, id="too short for any record"),
        pytest.param(built(key=encode_varint(-2)), 1, STRUCTURE, id="a key of -2 bytes"),
        pytest.param(built(key=encode_varint(2**31 - 1)), 1, STRUCTURE, id="a key of 2 GiB"),
        pytest.param(built(value=encode_varint(-2)), 1, STRUCTURE, id="a value of -2 bytes"),
        pytest.param(built(value=encode_varint(100)), 1, STRUCTURE, id="a value longer than the record"),
        pytest.param(built(headers=encode_varint(-1)), 1, STRUCTURE, id="-1 headers"),
        pytest.param(built(headers=encode_varint(2**31 - 1)), 1, STRUCTURE, id="2^31 - 1 headers"),
        pytest.param(built(headers=encode_varint(1)), 1, STRUCTURE, id="a header that is not there"),
        pytest.param(built(headers=encode_varint(1) + b"\1\1"), 1, STRUCTURE, id="a header without a name"),
        pytest.param(
            built(headers=encode_varint(1) + b"\2a" + encode_varint(-2)), 1, STRUCTURE, id="a header value of -2 bytes"
        ),
        pytest.param(built(headers=encode_varint(1) + b"\2a\1\0"), 1, STRUCTURE, id="a byte after the headers"),
        pytest.param(built(offset=b"\x80\x80\x80\x80\x80\0"), 1, STRUCTURE, id="a number of six bytes"),
        pytest.param(built(offset=b"\x80\x80\x80\x80\x10"), 1, STRUCTURE, id="a number of 33 bits"),
        pytest.param(built(offset=b"\x80\x80\x80\x80\0"), 1, SOUND, id="a number longer than it has to be"),
        pytest.param(built(offset=b"\xfe\xff\xff\xff\x0f"), 1, OFFSET, id="the largest offset delta"),
        pytest.param(built(time=b"\x80" * 10 + b"\0"), 1, STRUCTURE, id="a time of eleven bytes"),
        pytest.param(built(time=b"\x80" * 9 + b"\2"), 1, STRUCTURE, id="a time of 65 bits"),
        pytest.param(built(time=b"\x80" * 9 + b"\1"), 1, SOUND, id="a time of 64 bits"),
    ],
)
def test_each_kind_of_damage_has_its_own_result(surveyor: Surveyor, data: bytes, count: int, verdict: int) -> None:
    assert surveyor(data, count, ANY_TIME, BEGIN).verdict == verdict


def test_keys_are_checked_only_where_they_are_required(surveyor: Surveyor) -> None:
    data = record() + record(1, key=None) + record(2, key=b"")
    assert surveyor(data, 3, Bounds(), BEGIN).verdict == SOUND
    found = surveyor(data, 3, Bounds(keys_required=True), BEGIN)
    assert (found.verdict, found.record) == (NO_KEY, 1)
    assert surveyor(data, 3, Bounds(keys_required=True), found).verdict == SOUND


@pytest.mark.parametrize(
    ("base", "delta", "sound"),
    [
        (1_000, 0, True),
        (1_000, 500, True),
        (1_000, 501, False),
        (1_000, -100, True),
        (1_000, -101, False),
        (-1, 0, True),  # a record without a timestamp is within any bounds
        (0, -1, True),
        (TIME_MAX, 1, False),
        (TIME_MAX, TIME_MAX, False),
        (TIME_MIN, -1, False),
        (TIME_MIN, TIME_MIN, False),
    ],
)
def test_timestamps_are_compared_with_both_bounds(surveyor: Surveyor, base: int, delta: int, sound: bool) -> None:
    found = surveyor(record(0, delta), 1, Bounds(base, 900, 1_500), BEGIN)
    assert found.verdict == (SOUND if sound else TIME)
    if not sound:
        assert found.timestamp == min(max(base + delta, TIME_MIN), TIME_MAX)


def test_a_sum_that_leaves_64_bits_is_refused_even_without_bounds(surveyor: Surveyor) -> None:
    assert surveyor(record(0, 1), 1, Bounds(TIME_MAX), BEGIN).verdict == TIME
    assert surveyor(record(0, -1), 1, Bounds(TIME_MIN), BEGIN).verdict == TIME
    assert surveyor(record(0, 0), 1, Bounds(TIME_MAX), BEGIN).verdict == SOUND


def test_a_survey_continues_after_each_refused_record(surveyor: Surveyor) -> None:
    # So a producer learns of all refused records.
    data = record(0, 99) + record(1, key=None) + record(2, 5) + record(3, 99, None) + record(4, 7) + b"\0"
    bounds, found, seen = Bounds(0, 0, 10, True), BEGIN, []
    while (found := surveyor(data, 5, bounds, found)).verdict in (NO_KEY, TIME):
        seen.append((found.verdict, found.record, found.timestamp))
    assert seen == [(TIME, 0, 99), (NO_KEY, 1, 0), (NO_KEY, 3, 99)]
    assert found.verdict == SURPLUS and found.max_timestamp == 7


fields = st.tuples(
    st.integers(-(2**40), 2**40),
    st.none() | st.binary(max_size=70),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
)
times = st.sampled_from([TIME_MIN, -(2**41), -1, 0, 1_000, 2**41, TIME_MAX])
bounds_of_any_kind = st.builds(Bounds, times, times, times, st.booleans())


def read_by_the_other_reader(data: bytes, count: int, base: int) -> bool:
    """Whether `records` can read the same bytes, with consecutive offsets and timestamps of 64 bits."""
    try:
        found = read_records(data, count, 0, base, None)
    except CorruptBatch:
        return False
    in_range = all(TIME_MIN <= each.timestamp <= TIME_MAX for each in found)
    return in_range and [each.offset for each in found] == list(range(count))


def assert_agreement(data: bytes, count: int, bounds: Bounds) -> None:
    """Both surveys must find the same at each step. Without bounds they accept a batch if and only if the other reader
    does."""
    native = compile_survey()
    found = BEGIN
    while True:
        expected = survey(data, count, bounds, found)
        assert native(data, count, bounds, found) == expected
        if expected.verdict not in (NO_KEY, TIME):
            break
        found = expected
    unbounded = survey(data, count, Bounds(bounds.base_timestamp), BEGIN)
    assert (unbounded.verdict == SOUND) == read_by_the_other_reader(data, count, bounds.base_timestamp)


@given(st.lists(fields, min_size=1, max_size=6), bounds_of_any_kind, st.randoms(use_true_random=False))
def test_both_ways_agree_on_every_mutated_batch(many: list[Any], bounds: Bounds, random: Random) -> None:
    data = bytearray()
    for offset, (time, key, value, headers) in enumerate(many):
        write_record(data, time, offset, key, value, headers)
    assert_agreement(bytes(data), len(many), bounds)
    for _ in range(8):
        mutated = bytearray(data)
        for _ in range(random.randint(1, 3)):
            mutate(mutated, random)
        assert_agreement(bytes(mutated), max(len(many) + random.choice((0, 0, 0, -1, 1)), 1), bounds)


def mutate(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0:
            data[at : at + 1] = bytes([random.randrange(256)])
        case 1:
            data[at : at + 1] = bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF))])
        case 2:
            del data[at : at + random.randint(1, 4)]
        case _:
            data[at:at] = random.randbytes(random.randint(1, 4))


@given(st.binary(max_size=40), st.integers(1, 5), bounds_of_any_kind)
@example(b"\xff" * 40, 1, ANY_TIME)
def test_both_ways_agree_on_any_bytes(data: bytes, count: int, bounds: Bounds) -> None:
    assert_agreement(data, count, bounds)


def test_a_count_of_two_billion_costs_no_more_than_the_bytes(surveyor: Surveyor) -> None:
    assert surveyor(record(), 2**31 - 1, ANY_TIME, BEGIN).verdict == MISSING


def test_numba_is_not_loaded_before_it_is_wanted() -> None:
    # Otherwise every start of a broker would take a second and 100 MB more.
    code = (
        "import sys; sys.path[:] = {!r}; import ottla.broker.broker; "
        "print('numba' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code.format(sys.path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_without_a_place_for_the_cache_the_kernel_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither the package directory nor the home directory can be written, as in some containers.
    import numba

    compile_with_numba = numba.njit

    def njit(*arguments: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("no locator available")
        return compile_with_numba(*arguments, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert compile_survey.__wrapped__()(record(), 1, ANY_TIME, BEGIN).verdict == SOUND


@pytest.mark.parametrize("key", [None, b"", b"k" * 63])
@pytest.mark.parametrize("size", [None, 0, 1, 63, 64, 100, 4000])
def test_a_single_record_needs_no_survey(key: bytes | None, size: int | None) -> None:
    # A batch of a single record, as a producer that sends record by record sends it, is recognised without a survey. A
    # missing key is noticed.
    data = bytes(61) + record(key=key, value=None if size is None else bytes(size))
    assert is_plain_record(data, 61, False)
    assert is_plain_record(data, 61, True) == (key is not None)
    assert not is_plain_record(data + b"\0", 61, False) and not is_plain_record(data[:-1], 61, False)


@given(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(0, 40), st.integers(0, 255), st.integers(0, 200), st.integers(-1, 2)).map(
            lambda change: mutated(*change)
        ),
    ),
    st.booleans(),
)
@example(record(key=b"k" * 64), False)
@example(record(time=1), False)
@example(record(offset=1), False)
@example(record(headers=[("name", b"value")]), False)
def test_a_record_that_needs_no_survey_would_pass_it(data: bytes, keys_required: bool) -> None:
    # Whatever the bytes are, a record that passes without a survey would also pass one, with its batch's timestamp.
    if is_plain_record(data, 0, keys_required):
        found = survey(data, 1, Bounds(1000, 1000, 1000, keys_required))
        assert (found.verdict, found.record, found.max_timestamp) == (SOUND, 1, 1000)


def mutated(at: int, byte: int, size: int, kind: int) -> bytes:
    """A record with one byte changed."""
    data = bytearray(record(key=None if kind < 0 else b"k" * kind, value=bytes(size)))
    data[at % len(data)] = byte
    return bytes(data)
