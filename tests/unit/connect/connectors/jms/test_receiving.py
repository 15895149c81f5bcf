"""Messages are written once, whatever is lost: connections, acknowledgements, transactions."""

from collections import deque
from random import Random

import pytest

from ottla.connect.connectors.jms.receiving import Receiver, read_ids, shorten_id
from ottla.connect.connectors.jms.session import Frame
from ottla.connect.errors import RetriableError


class Queue:
    """What a JMS broker promises about a queue: what was not acknowledged is delivered again."""

    def __init__(self, random: Random) -> None:
        self.waiting: deque[Frame] = deque()
        self.random = random

    def add(self, number: int) -> None:
        self.waiting.append(Frame({"message-id": f"ID:{number}"}, b"%d" % number))


class FakeSession:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._held: list[Frame] = []

    def receive(self, count_max: int, bytes_max: int) -> list[Frame]:
        self._fail(0.1)
        found = [self._queue.waiting.popleft() for _ in range(min(count_max, len(self._queue.waiting)))]
        self._held += found
        return found

    def acknowledge(self, frame: Frame) -> None:
        self._fail(0.1)
        del self._held[: self._held.index(frame) + 1]
        self._fail(0.1)  # it has arrived, and its receipt is lost

    def close(self) -> None:
        self._queue.waiting.extendleft(reversed(self._held))
        self._held = []

    def _fail(self, probability: float) -> None:
        if self._queue.random.random() < probability:
            raise RetriableError("the connection is lost")


@pytest.mark.parametrize("consumers", [1, 3])
def test_each_message_is_written_once(seed: int, consumers: int) -> None:
    """Connections, acknowledgements and transactions fail at random, and drivers die."""
    random = Random(seed)
    queue = Queue(random)
    offsets: dict[int, dict[str, str]] = {}
    written: list[bytes] = []
    sent = 0

    def start() -> list[Receiver]:
        return [
            Receiver(lambda: FakeSession(queue), 7, read_ids(offsets.get(number)))  # type: ignore[arg-type, return-value]
            for number in range(consumers)
        ]

    receivers = start()
    for _ in range(2000):
        for _ in range(random.randrange(8) if sent < 3000 else 0):
            queue.add(sent)
            sent += 1
        number = random.randrange(consumers)
        receiver = receivers[number]
        committed = {each for offset in offsets.values() for each in read_ids(offset)}
        try:
            frames = receiver.collect(committed)
            if frames and random.random() < 0.7:  # else the transaction is aborted
                written += [each.body for each in frames]
                offsets[number] = {"ids": receiver.list_ids(frames)}
                committed |= set(read_ids(offsets[number]))
                if random.random() < 0.8:
                    receiver.settle(committed)
        except RetriableError:
            continue
        if random.random() < 0.02:  # the driver dies
            for each in receivers:
                each.close()
            receivers = start()
    for _ in range(2000):
        for number, receiver in enumerate(receivers):
            committed = {each for offset in offsets.values() for each in read_ids(offset)}
            try:
                frames = receiver.collect(committed)
                if frames:
                    written += [each.body for each in frames]
                    offsets[number] = {"ids": receiver.list_ids(frames)}
            except RetriableError:
                continue
    assert sorted(map(int, written)) == list(range(sent))
    assert not queue.waiting


def test_ids_of_an_offset() -> None:
    ids = [shorten_id(f"ID:{n}") for n in range(3)]
    assert read_ids({"ids": "".join(ids)}) == ids
    assert read_ids(None) == []
    assert {len(each) for each in ids} == {16}
