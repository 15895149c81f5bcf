"""What a Python worker has loaded stays: Spark need not look through it after each task.

Spark collects garbage whenever a worker is done with a task, and that takes as long as there are objects: 25 ms with
PySpark alone, 90 ms with what decodes records, in the middle of the next micro-batch. Modules are never garbage.
"""

import gc
import sys

_modules_kept = 0


def keep_what_is_loaded() -> None:
    """Called by each task; does something only if modules were loaded since the last one."""
    global _modules_kept
    if len(sys.modules) != _modules_kept:
        gc.collect()
        gc.freeze()
        _modules_kept = len(sys.modules)
