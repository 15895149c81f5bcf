"""Compiles every numba kernel into numba's cache, so that no broker, Spark worker or test waits for it later.

python tools/compile_kernels.py          # about 10 s when the cache is empty, 2 s when nothing has changed

numba keeps machine code in the `__pycache__` beside a kernel's source, or in NUMBA_CACHE_DIR. Its key is the time at
which the source was changed and the processor: code that was compiled for another one is not used.
"""

import sys
import time
from collections.abc import Callable
from random import Random

RATHER_LONG_S = 5.0


def compile_record_checks() -> None:
    """The check of a producer's records, in the broker."""
    from ottla.records.columns import compile_survey

    compile_survey()


def compile_compaction() -> None:
    """The kernels of the log cleaner."""
    from ottla.storage.cleaner.kernels import compiled_kernels

    compiled_kernels()


def compile_decoding() -> None:
    """Record batches to Arrow columns. These kernels have a signature, so importing them compiles them."""
    import ottla.pipeline.kernels  # noqa: F401 - see above


def compile_encoding() -> None:
    """Arrow columns to record batches. These kernels take their signature from their first call."""
    import pyarrow

    from ottla.pipeline.encoding import Encoder

    headers = pyarrow.list_(pyarrow.struct({"key": pyarrow.string(), "value": pyarrow.binary()}))
    rows = pyarrow.record_batch(
        {
            "key": pyarrow.array([b"key", None]),
            "value": pyarrow.array([b"value", None]),
            "headers": pyarrow.array([[{"key": "name", "value": b"content"}], None], headers),
            "partition": pyarrow.array([0, None], pyarrow.int32()),
            "timestamp": pyarrow.array([0, None], pyarrow.int64()),
        }
    )
    encoder = Encoder(lambda topic: 1, Random(0), topic="any", now_ms=lambda: 0)
    assert [*encoder.add(rows), *encoder.flush()]


def compile_change_capture() -> None:
    """Messages of PostgreSQL to Arrow columns. These kernels have a signature too."""
    import ottla.connect.connectors.postgresql.kernels  # noqa: F401 - see above


STEPS: dict[str, Callable[[], None]] = {
    "record checks": compile_record_checks,
    "compaction": compile_compaction,
    "decoding": compile_decoding,
    "encoding": compile_encoding,
    "change capture": compile_change_capture,
}


def main() -> int:
    print(f"compiling kernels (once, about 10 s): {', '.join(STEPS)}", flush=True)
    began = time.monotonic()
    for name, step in STEPS.items():
        step()
        if time.monotonic() - began > RATHER_LONG_S:
            print(f"  {name}: done after {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
