"""The jars of Spark's own Kafka connector: all of them or none, and nothing that they depend on."""

import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from benchmarks.peers.apache_kafka import Unavailable, build_project_file
from benchmarks.spark import stock_connector


def test_a_directory_must_hold_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # With one missing, Spark would fail in the middle of a query.
    monkeypatch.setenv(stock_connector.JARS_VARIABLE, str(tmp_path))
    names = [f"{name}-{version}.jar" for _, name, version in stock_connector.ARTIFACTS]
    for name in names[1:]:
        (tmp_path / name).touch()
    with pytest.raises(Unavailable, match="does not hold the jars"):
        stock_connector.find_connector_jars()
    (tmp_path / names[0]).touch()
    assert stock_connector.find_connector_jars().split(",") == sorted(str(tmp_path / name) for name in names)


def test_what_pyspark_has_already_is_left_out() -> None:
    # Two versions of a class on one class path would cause errors that a user cannot explain.
    project = xml.fromstring(build_project_file(stock_connector.ARTIFACTS, alone=True))
    dependencies = list(project.iter("dependency"))
    assert len(dependencies) == len(stock_connector.ARTIFACTS)
    assert all(each.find("exclusions/exclusion/artifactId") is not None for each in dependencies)
