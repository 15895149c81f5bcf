"""The process that Python workers are forked from."""

import sys
from pathlib import Path

import pytest

from ottla.spark.daemon import import_pyspark_from_files


def test_pyspark_is_not_imported_from_the_archive_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive has no byte code. One of another installation stays, and so does everything else."""
    installed, other, link = tmp_path / "site", tmp_path / "other", tmp_path / "link"
    archives = [
        str(each / "pyspark/python/lib" / name) for each in (link, other) for name in ("pyspark.zip", "py4j.zip")
    ]
    installed.mkdir()
    link.symlink_to(installed)
    rest = ["", str(tmp_path / "user-src.zip"), str(installed)]
    monkeypatch.setattr(sys, "path", [*archives, *rest])
    import_pyspark_from_files()
    assert sys.path == [*archives[2:], *rest]
    monkeypatch.setattr(sys, "path", archives)
    import_pyspark_from_files()
    assert sys.path == archives
