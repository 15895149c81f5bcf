"""Without Java, Maven or the jars the peer says what is missing, and a failed download leaves nothing half done."""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from benchmarks.peers import apache_kafka
from benchmarks.peers.apache_kafka import Unavailable


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # PATH is empty, so neither java nor mvn can be found.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(apache_kafka.JARS_VARIABLE, raising=False)
    monkeypatch.setattr(apache_kafka, "CACHE", tmp_path / "cache")
    with pytest.raises(Unavailable, match="mvn is not installed"):
        apache_kafka.find_jars()
    with pytest.raises(Unavailable, match="java is not installed"):
        apache_kafka.java_command("kafka.Kafka")


def test_a_directory_without_jars_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Java would only say that a class is missing.
    monkeypatch.setenv(apache_kafka.JARS_VARIABLE, str(tmp_path))
    with pytest.raises(Unavailable, match=apache_kafka.JARS_VARIABLE):
        apache_kafka.find_jars()


def test_a_failed_resolution_is_not_mistaken_for_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Maven copies one jar and then fails. The next run must try again.
    maven = tmp_path / "mvn"
    maven.write_text('#!/bin/sh\nfor last; do :; done\n: > "${last#*=}/kafka-clients-1.jar"\necho no network\nexit 1\n')
    maven.chmod(0o755)
    cache = tmp_path / "cache"
    monkeypatch.setattr(apache_kafka, "find_executable", lambda name: str(maven))
    monkeypatch.setattr(apache_kafka, "CACHE", cache)
    monkeypatch.delenv(apache_kafka.JARS_VARIABLE, raising=False)
    with pytest.raises(Unavailable, match="no network"):
        apache_kafka.find_jars()
    assert [each for each in cache.iterdir() if each.is_dir()] == []


def test_the_project_file_lists_every_artifact() -> None:
    # The file is well-formed, and has the pinned version of each artifact.
    project = xml.fromstring(apache_kafka.build_project_file())
    listed = [tuple(part.text for part in dependency) for dependency in project.iter("dependency")]
    assert listed == list(apache_kafka.ARTIFACTS)
