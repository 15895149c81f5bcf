"""`make setup` compiles every kernel, so the first broker, Spark worker or demo compiles nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
TOOL = PROJECT / "tools" / "compile_kernels.py"
ENCODE_AND_DECODE = ("tests/unit/pipeline/test_encoding.py", "tests/unit/pipeline/test_decoding.py")


def test_set_up_depends_on_every_source_of_kernels() -> None:
    # Each module that uses numba is among the sources that make the Makefile's rule compile again.
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^KERNELS := \$\(addprefix src/ottla/, (.*)\)$", makefile, re.MULTILINE)
    assert found is not None
    sources = {PROJECT / "src/ottla" / name for name in found[1].split()}
    assert all(source.exists() for source in sources)
    users = {
        path
        for path in (PROJECT / "src").rglob("*.py")
        if re.search(r"^\s*(import numba|from numba)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert users <= sources


@pytest.mark.long
def test_set_up_compiles_every_kernel_that_is_used(tmp_path: Path) -> None:
    # The cache is empty at first. After the tool ran once, neither the tool nor any encoding or decoding compiles more.
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}"}

    def compiled() -> set[tuple[Path, int]]:
        return {(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*.nbc")}

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], cwd=PROJECT, env=environment, check=True, capture_output=True)

    run(str(TOOL))
    after_set_up = compiled()
    assert after_set_up
    run(str(TOOL))
    assert compiled() == after_set_up
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", *ENCODE_AND_DECODE)
    assert compiled() == after_set_up
