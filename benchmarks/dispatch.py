"""What a small request costs without its connection: python -m benchmarks.dispatch

A broker in this process, and each kind of small request handed to its dispatch again and again: from the bytes of the
request to those of the answer, no socket and no second process. The fastest of many short windows is told. Whatever
else runs on the machine only makes a window slower, so this number holds still where a rate does not, and says whether
a change pays. To it belong about 12 us for the socket, the event loop and the connection, two thirds of them in the
kernel.
"""

import asyncio
import tempfile
import time
from functools import partial
from random import Random

from benchmarks.small_requests import KINDS
from ottla.broker import Broker
from ottla.call import Client
from ottla.cluster.topics import NewTopic, create_topic
from ottla.config import BrokerConfig
from ottla.handlers import Dispatch, load
from ottla.server import Server

WINDOW_REQUESTS = 30
SECONDS_EACH = 1.0
SIZE_BYTES = 4  # of a frame, which the connection takes off
READ, WRITTEN = "read", "written"


async def no_listener(server: Server, listener: object) -> int:
    return 0


def fastest_microseconds(dispatch: Dispatch, client: Client, frame: bytes, seconds: float) -> float:
    best = float("inf")
    clock = time.perf_counter
    end = clock() + seconds
    while (began := clock()) < end:
        for _ in range(WINDOW_REQUESTS):
            dispatch(client, bytearray(frame))
        best = min(best, clock() - began)
    return best / WINDOW_REQUESTS * 1e6


async def measured(seconds: float = SECONDS_EACH) -> dict[str, float]:
    """Microseconds for each kind."""
    with tempfile.TemporaryDirectory(prefix="ottla-dispatch-") as directory:
        broker = Broker(BrokerConfig.of({}), directory, listen=no_listener, machine_code=False)
        await broker.start()
        try:
            for topic in (READ, WRITTEN):
                await broker.node.metadata.change(
                    partial(create_topic, topic=NewTopic(topic), config=broker.node.config, random=Random(topic))
                )
            dispatch = Dispatch(broker.node, load())
            client = Client(1, "PLAINTEXT", ("127.0.0.1", 1), ("127.0.0.1", 9092))
            return {
                name: fastest_microseconds(dispatch, client, kind(READ, WRITTEN).data[SIZE_BYTES:], seconds)
                for name, kind in KINDS.items()
            }
        finally:
            await broker.stop(1)


def main() -> None:
    for name, microseconds in asyncio.run(measured()).items():
        print(f"{name:14} {microseconds:6.1f} us")


if __name__ == "__main__":
    main()
