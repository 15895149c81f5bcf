"""Ottla: an event streaming platform that speaks the Kafka protocol.

    ottla.read("topic").to_pandas()     records of a topic, for a notebook (reading.py)

ARCHITECTURE.md lists the packages below this one, with what each of them holds.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.reading import read as read

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What costs an import is imported when it is used: the broker and its commands start without it."""
    if name == "read":
        from ottla.reading import read

        return read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
