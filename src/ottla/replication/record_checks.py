"""Where the records of a batch are looked at: at once, or in a thread where that would hold up the event loop.

At once are most batches: machine code sees a megabyte of small records in a tenth of a millisecond. To a thread go
large compressed batches and those that are packed anew, and, while there is no machine code yet, batches of many
records. At most two such checks run at a time: they may take much memory, and fsync wants threads too.

The machine code is loaded in a thread when enough records have come by to make it worth 100 MB; until then, and for
good where it is not wanted (a simulation must not depend on real threads) or cannot be had, Python does the same work.
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
from ottla.replication.validation import Checked, Rules, too_large, validated
from ottla.system.threads import Offload, loaded

logger = logging.getLogger(__name__)

Outcome = Checked | KafkaError
"""An error is handed on, not raised: nobody may be left to hear of it."""

INLINE_BYTES = 4 << 20
INLINE_PACKED_BYTES = 16 << 10
INLINE_UNPACKED_BYTES = 128 << 10
INLINE_RECORDS_OF_PYTHON = 500
"""What Python sees in one to two milliseconds."""

RECORDS_WORTH_COMPILING = 10_000
CONCURRENT_CHECKS = 2


class RecordChecks:
    def __init__(self, offload: Offload, *, compiled: bool = True) -> None:
        self.survey: columns.Surveyor = columns.survey
        self._offload = offload
        self._compiling = not compiled
        self._surveyed = 0
        self._running = 0
        self._waiting: deque[tuple[asyncio.Future[Outcome], Callable[[], Outcome]]] = deque()

    def check(
        self, records: memoryview, header: BatchHeader, rules: Rules, now_ms: int
    ) -> Checked | asyncio.Future[Outcome]:
        """The batch as it is to be appended, or the promise of it; KafkaError if it is refused at once.

        A batch must stay as it is until its check is done, and those of one producer must be appended in the order in
        which they came, whichever is checked first.
        """
        packed = header.attributes & CODEC_MASK
        if not packed and rules.take_as_it_is(records, header, now_ms):
            return Checked(records, header)
        if not self._compiling and header.record_count > 1:  # a lone record gains nothing by machine code
            self._count(header.record_count)
        survey, most = self.survey, rules.unpacked_bytes_max
        limit = INLINE_PACKED_BYTES if packed or rules.packs_anew(header) else INLINE_BYTES
        if header.length <= limit and (header.record_count <= INLINE_RECORDS_OF_PYTHON or survey is not columns.survey):
            try:
                return validated(records, header, rules, now_ms, survey, INLINE_UNPACKED_BYTES if packed else most)
            except TooLarge:
                pass  # more than the event loop has time for
        return self._in_thread(partial(_outcome, records, header, rules, now_ms, survey, most))

    # Threads

    def _in_thread(self, work: Callable[[], Outcome]) -> asyncio.Future[Outcome]:
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, work))
        self._start()
        return answer

    def _start(self) -> None:
        while self._waiting and self._running < CONCURRENT_CHECKS:
            answer, work = self._waiting.popleft()
            if not answer.cancelled():  # as it is when the client has gone
                self._running += 1
                self._offload(work).add_done_callback(partial(self._done, answer))

    def _done(self, answer: asyncio.Future[Outcome], work: asyncio.Future[Outcome]) -> None:
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
            self._offload(loaded, columns.compile_survey).add_done_callback(self._compiled)

    def _compiled(self, future: asyncio.Future[columns.Surveyor]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self.survey = future.result()
        else:
            logger.warning("records are checked by Python, many times slower than by machine code: %s", error)


def _outcome(
    records: memoryview, header: BatchHeader, rules: Rules, now_ms: int, survey: columns.Surveyor, most: int
) -> Outcome:
    try:
        return validated(records, header, rules, now_ms, survey, most)
    except TooLarge:
        return too_large(header, most)
    except KafkaError as error:
        # What its traceback leads to, the unpacked records among it, leads back to the error: it would all stay.
        error.__traceback__ = error.__context__ = None
        return error
