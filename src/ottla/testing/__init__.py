"""A broker for tests: on a free port, in a fresh directory, with faults to order and a clock to move.

    with ottla.testing.broker(num_partitions=3) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

The pytest fixtures `ottla_broker` and `ottla_session_broker` come with the package (`plugin.py`).

local.py     what a test holds: LocalBroker, Snapshot        launch.py    what a broker is started with and obeys
thread.py    a broker in a thread of the test                process.py   one in a child; __main__.py is that child
clock.py     time that can be moved                          topics.py    topics, made without a client library

pytest imports this package wherever Ottla is installed, so it imports nothing until a broker is wanted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from ottla.testing.local import LocalBroker, Snapshot

__all__ = ["LocalBroker", "Snapshot", "broker"]


@contextmanager
def broker(
    *, process: bool = False, snapshot: "Snapshot | PathLike[str] | str | None" = None, **settings: Any
) -> "Iterator[LocalBroker]":
    """A broker until the end of the `with` block: in this process, or as a child of it (`process=True`).

    Settings have Kafka's names with `_` for `.`; with `snapshot` the broker begins with the data it holds. What the
    broker leaves behind is removed, however the block ends.
    """
    from ottla.testing.local import LocalBroker

    local = LocalBroker(settings, process=process, snapshot=snapshot)
    try:
        local.restart()
        yield local
    finally:
        local.close()


def __getattr__(name: str) -> Any:
    """The two classes, for annotations and isinstance."""
    if name in ("LocalBroker", "Snapshot"):
        from ottla.testing import local

        return getattr(local, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
