"""The cluster of programs that name none: Streams, Spark and Connect find it where the command line does."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.connect import add_arguments
from ottla.cli.connect.running import read_worker_properties
from ottla.client.defaults import find_default_connection
from ottla.spark.cluster_options import complete_cluster
from ottla.streams.errors import StreamsError
from ottla.streams.options import AppOptions, make_options

PROFILE = """\
bootstrap.servers=far:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.username=alice
sasl.password=secret
auto.offset.reset=latest
acks=1
schema.registry.url=http://registry
"""
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither a profile nor a variable."""
    for name in ("OTTLA_PROFILE", "OTTLA_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def profile(nothing: Path) -> None:
    """A profile that is in use."""
    (nothing / "ottla" / "profiles").mkdir(parents=True)
    (nothing / "ottla" / "profiles" / "far.properties").write_text(PROFILE)
    (nothing / "ottla" / "profile").write_text("far\n")


def make_app_options(**given: Any) -> AppOptions:
    return make_options(**{"name": "shop", "bootstrap": None, "settings": {}, "config": {}, **given})


def read_worker(*words: str) -> dict[str, str]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    found = read_worker_properties(parser.parse_args(["up", *words]))
    return {name: value for name, value in found.items() if not name.endswith("converter")}


def test_without_anything_it_is_the_local_broker(nothing: Path) -> None:
    assert find_default_connection() == {"bootstrap.servers": "localhost:9092"}
    assert make_app_options().bootstrap == "localhost:9092"
    assert complete_cluster(None, None) == {"kafka.bootstrap.servers": "localhost:9092"}
    assert read_worker() == {"bootstrap.servers": "localhost:9092"}


def test_a_profile_gives_the_address_and_the_login(profile: None) -> None:
    # What is for consumers or producers only stays out: a source of Spark would refuse auto.offset.reset.
    assert find_default_connection() == {"bootstrap.servers": "far:9093", **LOGIN}
    app = make_app_options(settings={"sasl.username": "bob"})
    assert (app.bootstrap, app.settings) == ("far:9093", {**LOGIN, "sasl.username": "bob"})
    options = complete_cluster(None, {"keyFormat": "json", "kafka.sasl.username": "bob"})
    of_kafka = {f"kafka.{name}": value for name, value in {**LOGIN, "sasl.username": "bob"}.items()}
    assert options == {"kafka.bootstrap.servers": "far:9093", "keyformat": "json", **of_kafka}
    assert read_worker("--set", "group.id=etl") == {"bootstrap.servers": "far:9093", "group.id": "etl", **LOGIN}


def test_a_variable_is_stronger_than_the_profile(profile: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "near:1")
    assert make_app_options().bootstrap == "near:1"
    assert complete_cluster(None, {})["kafka.bootstrap.servers"] == "near:1"
    assert read_worker()["bootstrap.servers"] == "near:1"


def test_an_address_of_its_own_leaves_the_profile_out(profile: None) -> None:
    """The login of one cluster must never go to another one."""
    for app in (
        make_app_options(bootstrap="own:1"),
        make_app_options(settings={"bootstrap.servers": "own:1"}),
    ):
        assert app.bootstrap == "own:1"
        assert not LOGIN.keys() & app.settings.keys()
    assert complete_cluster("own:1", {}) == {"kafka.bootstrap.servers": "own:1"}
    given = {"kafka.bootstrap.servers": "own:1"}
    assert complete_cluster(None, given) == given
    assert read_worker("-b", "own:1") == {"bootstrap.servers": "own:1"}
    assert read_worker("--set", "bootstrap.servers=own:1") == {"bootstrap.servers": "own:1"}


def test_a_profile_that_is_missing(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "nobody")
    with pytest.raises(StreamsError, match="App: there is no profile 'nobody'"):
        make_app_options()
    with pytest.raises(ValueError, match="there is no profile 'nobody'"):
        complete_cluster(None, None)
    assert make_app_options(bootstrap="own:1").bootstrap == "own:1"
