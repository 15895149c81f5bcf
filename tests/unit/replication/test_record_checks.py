"""Which batches are checked at once and which in a thread, how many at a time, and when machine code is loaded."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.config import BrokerConfig, TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.records import batch, columns
from ottla.records.record import Fields
from ottla.replication import record_checks
from ottla.replication.record_checks import CONCURRENT_CHECKS, INLINE_RECORDS_OF_PYTHON, CheckResult, RecordChecks
from ottla.replication.validation import CheckedBatch, Rules

NOW = 1_700_000_000_000
PRODUCER = TopicConfig.of({}, BrokerConfig.of({}))
GZIP = TopicConfig.of({"compression.type": "gzip"}, BrokerConfig.of({}))


class Threads:
    """An offload whose work runs when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[asyncio.Future[Any], Callable[..., Any]]] = []

    def __call__(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((future, lambda: function(*args)))
        return future

    async def run_one(self, *, error: Exception | None = None) -> None:
        future, work = self.asked.pop(0)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def noise(size: int) -> bytes:
    return Random(1).randbytes(size)


def batch_of(count: int, value: bytes = b"", codec: int = 0, time: int = NOW) -> bytearray:
    return batch.encode([(b"k", value, (), time)] * count, codec=codec)


def check(
    checks: RecordChecks, data: bytearray, config: TopicConfig = PRODUCER
) -> CheckedBatch | asyncio.Future[CheckResult]:
    return checks.check(memoryview(data), batch.check_client_batch(data), Rules.of(config), NOW)


@pytest.mark.parametrize(
    ("data", "config", "at_once"),
    [
        pytest.param(batch_of(1), PRODUCER, True, id="small"),
        pytest.param(batch_of(10, noise(100_000)), PRODUCER, True, id="1 MB of a few records"),
        pytest.param(batch_of(INLINE_RECORDS_OF_PYTHON + 1), PRODUCER, False, id="too many records for Python"),
        pytest.param(batch_of(1, noise(5 << 20)), PRODUCER, False, id="5 MiB"),
        pytest.param(batch_of(1, noise(1_000), 1), PRODUCER, True, id="small and packed"),
        pytest.param(batch_of(1, noise(20_000), 1), PRODUCER, False, id="large and packed"),
        pytest.param(batch_of(1, bytes(100_000), 1), PRODUCER, True, id="small that unfolds to a little"),
        pytest.param(batch_of(1, bytes(200_000), 1), PRODUCER, False, id="small that unfolds to much"),
        pytest.param(batch_of(1, bytes(200_000), 4), PRODUCER, False, id="small that unfolds to much, zstd"),
        pytest.param(batch_of(1, noise(1_000)), GZIP, True, id="small, to be packed"),
        pytest.param(batch_of(1, noise(20_000)), GZIP, False, id="large, to be packed"),
    ],
)
def test_only_what_takes_long_goes_to_a_thread(data: bytearray, config: TopicConfig, at_once: bool) -> None:
    async def scenario() -> None:
        threads = Threads()
        result = check(RecordChecks(threads), data, config)
        assert isinstance(result, CheckedBatch) == at_once
        assert bool(threads.asked) != at_once
        if not at_once:
            await threads.run_one()
        outcome = result.result() if isinstance(result, asyncio.Future) else result
        assert isinstance(outcome, CheckedBatch)
        assert batch.check(outcome.records) == outcome.header

    asyncio.run(scenario())


def test_what_a_thread_refuses_comes_back_as_a_value() -> None:
    # Whoever asked may be gone by then; an exception that nobody takes would be logged as a fault of the broker.
    async def scenario() -> None:
        threads = Threads()
        result = check(RecordChecks(threads), batch_of(1, noise(20_000), 4, NOW + 99_000_000))
        await threads.run_one()
        assert isinstance(result, asyncio.Future)
        refused = result.result()
        assert isinstance(refused, KafkaError) and refused.code == ErrorCode.INVALID_TIMESTAMP
        assert refused.__traceback__ is None  # it would keep the unpacked records in memory

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_bomb_is_too_large(codec: int) -> None:
    # Snappy cannot shrink as much as the others; its bomb is large on the wire, too.
    async def scenario() -> None:
        threads = Threads()
        data = batch_of(1, bytes(25 << 20), codec)
        result = check(RecordChecks(threads), data)
        await threads.run_one()
        assert isinstance(result, asyncio.Future)
        refused = result.result()
        assert isinstance(refused, KafkaError) and refused.code == ErrorCode.MESSAGE_TOO_LARGE

    asyncio.run(scenario())


def test_few_checks_run_at_a_time_and_the_others_wait() -> None:
    # Each may take as much memory as a batch may unfold to, and fsync wants a thread too.
    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads)
        results = [check(checks, batch_of(1, noise(20_000), 1)) for _ in range(CONCURRENT_CHECKS + 3)]
        assert all(isinstance(result, asyncio.Future) for result in results)
        for left in range(len(results), 0, -1):
            assert len(threads.asked) == min(left, CONCURRENT_CHECKS)
            await threads.run_one()
        assert all(isinstance(result, asyncio.Future) and result.done() for result in results)

    asyncio.run(scenario())


def test_a_check_that_nobody_waits_for_any_more_is_not_begun() -> None:
    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads)
        results = [check(checks, batch_of(1, noise(20_000), 1)) for _ in range(CONCURRENT_CHECKS + 2)]
        for result in results[: CONCURRENT_CHECKS + 1]:
            assert isinstance(result, asyncio.Future)
            result.cancel()
        for _ in range(CONCURRENT_CHECKS + 1):
            await threads.run_one()
        assert not threads.asked
        assert isinstance(results[-1], asyncio.Future) and isinstance(results[-1].result(), CheckedBatch)

    asyncio.run(scenario())


def test_a_thread_that_fails_fails_that_check_only() -> None:
    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads)
        first, second = (check(checks, batch_of(1, noise(20_000), 1)) for _ in range(2))
        await threads.run_one(error=MemoryError())
        await threads.run_one()
        assert isinstance(first, asyncio.Future) and isinstance(first.exception(), MemoryError)
        assert isinstance(second, asyncio.Future) and isinstance(second.result(), CheckedBatch)

    asyncio.run(scenario())


def test_machine_code_is_loaded_once_when_it_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker that sees a few records, or lone ones, never pays for it; afterwards large batches are checked at once.
    monkeypatch.setattr(record_checks, "RECORDS_WORTH_COMPILING", 1_000)

    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads)
        for _ in range(9):
            assert isinstance(check(checks, batch_of(100)), CheckedBatch)
        for _ in range(200):
            assert isinstance(check(checks, batch_of(1)), CheckedBatch)
        assert not threads.asked
        for _ in range(5):
            assert isinstance(check(checks, batch_of(100)), CheckedBatch)
        assert len(threads.asked) == 1 and checks.survey is columns.survey
        await threads.run_one()
        assert checks.survey is columns.compile_survey()
        assert isinstance(check(checks, batch_of(5_000)), CheckedBatch)
        assert not threads.asked

    asyncio.run(scenario())


def test_without_numba_python_does_the_work(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(record_checks, "RECORDS_WORTH_COMPILING", 1)
    caplog.set_level("INFO")

    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads)
        check(checks, batch_of(2))
        await threads.run_one(error=ImportError("No module named 'numba'"))
        assert isinstance(check(checks, batch_of(1)), CheckedBatch)
        assert not threads.asked and checks.survey is columns.survey

    asyncio.run(scenario())
    assert "numba" in caplog.text


def test_a_simulation_never_asks_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would depend on what this machine has in its cache.
    monkeypatch.setattr(record_checks, "RECORDS_WORTH_COMPILING", 1)

    async def scenario() -> None:
        threads = Threads()
        checks = RecordChecks(threads, compiled=False)
        records: list[Fields] = [(None, b"", (), NOW)]
        assert isinstance(check(checks, batch.encode(records * 400)), CheckedBatch)
        assert not threads.asked

    asyncio.run(scenario())
