"""pandas is not imported before somebody needs it, and pyarrow knows it from then on."""

import subprocess
import sys

PROGRAM = """
import sys
import pyarrow as pa
from ottla.pipeline.pandas_later import load_pandas_later
load_pandas_later("pyspark.testing.utils")
assert pa.array(["a"]).to_pylist() == ["a"]
assert "pandas" not in sys.modules
import pandas
load_pandas_later()
nanosecond = pandas.Series([pandas.Timestamp(1)])
assert pa.array(nanosecond).cast("int64").to_pylist() == [1]
assert pa.array(pandas.Series([1.0, None]), from_pandas=True).null_count == 1
"""


def test_pandas_is_imported_by_whoever_needs_it() -> None:
    """Without the second look of pyarrow, a Series is a list of Python objects, and nanoseconds are lost."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
