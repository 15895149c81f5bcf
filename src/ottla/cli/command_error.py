"""How a command ends when it fails: one line on stderr that a person understands, and an exit status."""

import errno
import sys

USAGE_ERROR = 2
FAILURE = 1

_OF_EXTRAS = {
    **dict.fromkeys(("numba", "numpy", "orjson", "pandas", "google", "pyarrow", "pyspark", "rocksdict"), "spark"),
    **dict.fromkeys(("adbc_driver_postgresql", "adbc_driver_sqlite", "boto3", "deltalake", "fastavro"), "connect"),
}
"""Packages that `pip install ottla` leaves out: the extra that brings them."""
_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class CommandError(Exception):
    """Ends the command: one readable line for stderr, and the exit status."""

    def __init__(self, message: str, status: int = FAILURE) -> None:
        super().__init__(message)
        self.status = status


def explain_error(error: Exception) -> str:
    """What any error means, in one line. Commands raise CommandError where they know more than the error says."""
    return " ".join(_explain(error).split())


def _explain(error: Exception) -> str:
    if isinstance(error, CommandError):
        return str(error)
    # An error of a client cannot be here without its module, and most commands that fail have not imported it.
    if "ottla.client.connection" in sys.modules:
        from ottla.client.connection import Unreachable
        from ottla.errors import KafkaError

        if isinstance(error, Unreachable):
            return f"cannot connect to {error}"
        if isinstance(error, KafkaError):
            return f"{error.message} ({error.code.name})" if error.message else error.code.name
    if "confluent_kafka" in sys.modules:
        from confluent_kafka import KafkaException

        if isinstance(error, KafkaException):
            from ottla.cli.client import explain

            return explain(error.args[0]) if hasattr(error.args[0], "str") else str(error)
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in _OF_EXTRAS:
            return f"{package} is not installed, and this needs it: pip install 'ottla[{_OF_EXTRAS[package]}]'"
    if isinstance(error, UnicodeDecodeError):
        return f"the input is not UTF-8 text: byte {error.object[error.start]:#04x} at position {error.start}"
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        if error.filename is None and error.errno in _WRITE_ERRORS:
            return f"standard output: {reason}"
        return f"{error.filename}: {reason}" if error.filename is not None else reason
    if isinstance(error, ValueError) and str(error):
        return str(error)
    return f"internal error: {type(error).__name__}: {error} (OTTLA_TRACEBACK=1 shows where)"
