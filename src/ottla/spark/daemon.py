"""The process that Spark forks its Python workers from: `pyspark.daemon` with the modules of tasks loaded beforehand.

A task's modules take seconds of processor time to import. Loaded before the fork, they are imported once, and the
garbage collection after each task need not visit them. Streams and Connect each have a module that runs this with what
their tasks need; `spark.python.daemon.module` names it.
"""

import gc
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ottla.pipeline.pandas_later import load_pandas_later

COMMON_MODULES: Final = ("pyspark.worker", "ottla.pipeline.encoding", "ottla.pipeline.kernels")
_ARCHIVES: Final = "/pyspark/python/lib/"
"""Where the archives of PySpark and py4j are, below the directory that both packages are installed in."""


def run_daemon(modules: Iterable[str]) -> None:
    """Load what every task needs, then serve Spark. None of these modules may start a thread: it would be lost."""
    import_pyspark_from_files()
    load_pandas_later()
    for name in (*COMMON_MODULES, *modules):
        import_module(name)
    gc.collect()
    gc.freeze()
    from pyspark import daemon

    daemon.worker = _serve_quietly(daemon.worker)  # type: ignore[assignment]
    daemon.manager()


def import_pyspark_from_files() -> None:
    """Have PySpark imported from the directory that it is installed in.

    Spark lets its Python processes import PySpark from an archive in that directory, which has no byte code: Python
    compiles the modules in every daemon, which takes 1.0 s of processor time instead of 0.2.
    """
    directories = {Path(each).resolve() for each in sys.path if Path(each).is_dir()}
    for archive in [each for each in sys.path if _ARCHIVES in each and each.endswith(".zip")]:
        if Path(archive.rpartition(_ARCHIVES)[0]).resolve() in directories:
            sys.path.remove(archive)


def _serve_quietly(serve: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """Serves Spark as PySpark does, without a stack trace on the terminal where Spark has hung up: it does so whenever
    a session ends or a job fails."""

    def serve_quietly(connection: Any, is_authenticated: bool) -> int:
        try:
            return serve(connection, is_authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_quietly
