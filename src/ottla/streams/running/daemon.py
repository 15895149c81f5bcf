"""The process that Spark forks its Python workers from: `pyspark.daemon` with the modules of tasks loaded beforehand.

A task's modules take seconds of processor time to import, and a job with Column steps needs two workers for each core.
Loaded before the fork, they are imported once, and the garbage collection after each task need not visit them.
"""

import gc
from importlib import import_module
from typing import Final

MODULES: Final = (
    "pyspark.worker",
    "ottla.pipeline.encoding",
    "ottla.pipeline.kernels",
    "ottla.streams.running.tasks",
)


def load_task_modules() -> None:
    """Import what every task needs. None of these modules starts a thread of Python, so forking stays safe."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    load_task_modules()
    manager()
