"""Keeps pyarrow from importing pandas in a process that may never need it.

pyarrow imports pandas, if it is installed, when it first makes an array or a scalar of a Python value, to recognise
pandas objects among such values. That takes 0.3 to 0.5 s of processor time and 40 MB. pyarrow looks only once. So
`load_pandas_later` lets it look while pandas cannot be found, and has it look again if anybody imports pandas later.
"""

import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pyarrow as pa

PYSPARK_TESTING: Final = "pyspark.testing.utils"
"""PySpark asks this module whether there is numpy whenever Python calls Java, and the module imports pandas."""
_PANDAS: Final = "pandas"


def load_pandas_later(*modules: str) -> None:
    """Does nothing if pandas is loaded already. Imports these modules, which import pandas only if they find it."""
    if _PANDAS in sys.modules:
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.scalar(0)
    for name in modules:
        importlib.import_module(name)
    finder.hidden_from = None


class _PandasFinder(MetaPathFinder):
    """Does not find pandas while it is hidden from this thread. Else finds it where Python does, once, and tells
    pyarrow when it is loaded."""

    def __init__(self) -> None:
        self.hidden_from: int | None = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if self.hidden_from == threading.get_ident():
            raise ModuleNotFoundError("pandas is loaded later")
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(_PANDAS)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                _ = pa.lib._pandas_api.pd  # looks for pandas again if it was not found before

            spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec
