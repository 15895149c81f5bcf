"""What commands that run workers share: log lines without secrets, the signals that stop them, and their errors."""

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.connect.asking import read_file
from ottla.observability import logs

if TYPE_CHECKING:
    from ottla.connect.settings.redaction import Redactor

_TALKATIVE: Final = ("uvicorn", "py4j", "stomp", "stomp.py", "urllib3")
"""Libraries that log each of their steps."""


@contextmanager
def running_workers(log_level: str) -> "Iterator[tuple[Redactor, Event]]":
    """The redactor for the workers, and the event that Ctrl-C and SIGTERM set. An error of a worker becomes one line
    without secrets."""
    from ottla.connect.errors import ConnectError
    from ottla.connect.settings.redaction import RedactingFormatter, Redactor
    from ottla.connect.worker.herder import HerderError

    redactor = Redactor()
    logs.configure(sys.stderr, log_level, RedactingFormatter(logs.LineFormatter(), redactor))
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    stopping = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        yield redactor, stopping
    except (ConnectError, HerderError) as error:
        raise CommandError(redactor.redact(str(error)).replace("\n", "; ")) from None


def read_properties_file(path: str | None) -> dict[str, str]:
    """The properties of a file; none without a file."""
    from ottla.config.properties import read_properties
    from ottla.config.settings import ConfigError

    if path is None:
        return {}
    try:
        return dict(read_properties(read_file(path)))
    except ConfigError as error:
        raise CommandError(f"{path}: {error}", USAGE_ERROR) from None
