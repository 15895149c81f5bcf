"""Failures that a connector or its user can cause. The first line of a message says what is wrong in one sentence."""


class ConnectError(Exception):
    """The connector cannot go on: its task fails until somebody restarts it or changes its settings."""


class RetriableError(ConnectError):
    """A server is away, slow or busy. The batch is tried again, with longer and longer pauses."""


class BadConfig(ConnectError):
    """Settings that a connector, a transformation or the worker cannot work with."""


class RecordError(ConnectError):
    """One record cannot be converted, transformed or written. `errors.tolerance` decides what becomes of it."""
