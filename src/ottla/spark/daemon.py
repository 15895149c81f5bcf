"""The process that Spark forks its Python workers from: `pyspark.daemon` with the modules of tasks loaded beforehand.

A task's modules take seconds of processor time to import. Loaded before the fork, they are imported once, and the
garbage collection after each task need not visit them. Streams and Connect each have a module that runs this with what
their tasks need; `spark.python.daemon.module` names it.
"""

import gc
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from ottla.pipeline.pandas_later import load_pandas_later

COMMON_MODULES: Final = ("pyspark.worker", "ottla.pipeline.encoding", "ottla.pipeline.kernels")


def run_daemon(modules: Iterable[str]) -> None:
    """Load what every task needs, then serve Spark. None of these modules may start a thread: it would be lost."""
    load_pandas_later()
    for name in (*COMMON_MODULES, *modules):
        import_module(name)
    gc.collect()
    gc.freeze()
    from pyspark import daemon

    daemon.worker = _serve_quietly(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


def _serve_quietly(serve: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """Serves Spark as PySpark does, without a stack trace on the terminal where Spark has hung up: it does so whenever
    a session ends or a job fails."""

    def serve_quietly(connection: Any, is_authenticated: bool) -> int:
        try:
            return serve(connection, is_authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_quietly
