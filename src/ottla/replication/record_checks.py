"""Runs the validation of batches: at once, or in a thread if it would block the event loop for too long.

Most batches are checked at once: machine code reads a megabyte of small records in a tenth of a millisecond. Large
compressed batches, batches to recompress and, before the machine code is loaded, batches of many records go to a
thread. At most two such checks run at a time, because they may take much memory and fsync needs threads too.

The machine code is loaded in a thread once enough records have been checked to make it worth its 100 MB. Until then
Python does the same work, and always where machine code is switched off (a simulation must not depend on real
threads) or cannot be compiled.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from ottla.errors import KafkaError
from ottla.records import columns
from ottla.records.batch import CODEC_MASK, BatchHeader
from ottla.records.compression import TooLarge
from ottla.replication.validation import CheckedBatch, Rules, make_too_large_error, validate
from ottla.system.threads import Offload, load_library

logger = logging.getLogger(__name__)

CheckResult = CheckedBatch | KafkaError
"""The result of a check in a thread. An error is returned, not raised: the request may have been cancelled meanwhile,
and an exception that nobody retrieves would be logged."""

INLINE_BYTES = 4 << 20
INLINE_PACKED_BYTES = 16 << 10
INLINE_UNPACKED_BYTES = 128 << 10
INLINE_RECORDS_OF_PYTHON = 500
"""What Python checks in one to two milliseconds."""

RECORDS_WORTH_COMPILING = 10_000
CONCURRENT_CHECKS = 2


class RecordChecks:
    def __init__(self, offload: Offload, *, compiled: bool = True) -> None:
        self.survey: columns.Surveyor = columns.survey
        self._offload = offload
        self._compiling = not compiled
        self._surveyed = 0
        self._running = 0
        self._waiting: deque[tuple[asyncio.Future[CheckResult], Callable[[], CheckResult]]] = deque()

    def check(
        self, records: memoryview, header: BatchHeader, rules: Rules, now_ms: int
    ) -> CheckedBatch | asyncio.Future[CheckResult]:
        """Check a batch. Returns it as it has to be appended, or a future if the check runs in a thread.

        Raises KafkaError if a check at once refuses the batch. Nobody may change the batch until its check is done, and
        the caller must append the batches of a producer in the order they were sent, whichever check ends first.
        """
        packed = header.attributes & CODEC_MASK
        if not packed and rules.needs_no_checks(records, header, now_ms):
            return CheckedBatch(records, header)
        if not self._compiling and header.record_count > 1:  # machine code gains nothing for a single record
            self._count(header.record_count)
        survey, most = self.survey, rules.unpacked_bytes_max
        limit = INLINE_PACKED_BYTES if packed or rules.recompresses(header) else INLINE_BYTES
        if header.length <= limit and (header.record_count <= INLINE_RECORDS_OF_PYTHON or survey is not columns.survey):
            try:
                return validate(records, header, rules, now_ms, survey, INLINE_UNPACKED_BYTES if packed else most)
            except TooLarge:
                pass  # too much for the event loop
        return self._run_in_thread(partial(_validate_in_thread, records, header, rules, now_ms, survey, most))

    # Threads

    def _run_in_thread(self, work: Callable[[], CheckResult]) -> asyncio.Future[CheckResult]:
        answer: asyncio.Future[CheckResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, work))
        self._start()
        return answer

    def _start(self) -> None:
        while self._waiting and self._running < CONCURRENT_CHECKS:
            answer, work = self._waiting.popleft()
            if not answer.cancelled():  # the client is still connected
                self._running += 1
                self._offload(work).add_done_callback(partial(self._handle_result, answer))

    def _handle_result(self, answer: asyncio.Future[CheckResult], work: asyncio.Future[CheckResult]) -> None:
        self._running -= 1
        error = None if work.cancelled() else work.exception()
        if not answer.done():
            if work.cancelled():
                answer.cancel()
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(work.result())
        self._start()

    # Machine code

    def _count(self, records: int) -> None:
        self._surveyed += records
        if self._surveyed >= RECORDS_WORTH_COMPILING:
            self._compiling = True
            self._offload(load_library, columns.compile_survey).add_done_callback(self._handle_compiled)

    def _handle_compiled(self, future: asyncio.Future[columns.Surveyor]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.survey = future.result()
        elif isinstance(error, ImportError):
            logger.info("numba is not installed (the extra `fast`): records are checked by Python, which is slower")
        else:
            logger.warning(
                "machine code cannot be loaded, records are checked by Python, which is many times slower: %s", error
            )


def _validate_in_thread(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, survey: columns.Surveyor, most: int
) -> CheckResult:
    try:
        return validate(records, header, rules, now_ms, survey, most)
    except TooLarge:
        return make_too_large_error(header, most)
    except KafkaError as error:
        # The traceback refers to the decompressed records and back to the error: that cycle would keep them in memory.
        error.__traceback__ = error.__context__ = None
        return error
