"""Which settings a broker gets from the command line, and the errors for wrong ones."""

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.command_error import USAGE_ERROR, CommandError
from ottla.cli.settings import broker_config, data_directories
from ottla.config import BrokerConfig, Listener
from ottla.config.listeners import address_of


def up(environment: dict[str, str] | None = None, **given: Any) -> BrokerConfig:
    options = Namespace(
        config=None,
        data=None,
        host=None,
        port=None,
        metrics_port=None,
        node_id=None,
        zookeeper=None,
        add_scram=[],
        allow_anonymous_network=False,
        settings=[],
    )
    options.__dict__.update(given)
    return broker_config(options, environment or {"XDG_DATA_HOME": "/data"})


def data_directory(config: BrokerConfig) -> str:
    (directory,) = data_directories(config)
    return directory


def listener(config: BrokerConfig) -> tuple[str, int]:
    (bound,) = config.endpoints.bound
    return bound.host, bound.port


def properties(directory: Path, text: str) -> str:
    path = directory / "server.properties"
    path.write_text(text)
    return str(path)


def test_the_defaults_work_without_arguments() -> None:
    # The broker listens on the loopback address only, on Kafka's port, and data is in the user's data directory.
    config = up()
    assert listener(config) == ("localhost", 9092)
    assert data_directory(config) == "/data/ottla"
    assert config.group_initial_rebalance_delay_ms == 0, "as in the file that Apache Kafka comes with"


def test_without_xdg_the_data_is_in_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    assert data_directory(up({"HOME": "/somebody"})) == "/somebody/.local/share/ottla"


def test_sources_of_settings_have_an_order(tmp_path: Path) -> None:
    # --set above --port and --data, those above the file, the file above the defaults.
    file = properties(tmp_path, "listeners=PLAINTEXT://:1111\nlog.dirs=/from/file\nnum.partitions=3\n")
    assert listener(up(config=file)) == ("", 1111)
    assert up(config=file).group_initial_rebalance_delay_ms == 3000
    assert data_directory(up(config=file)) == "/from/file"
    config = up(config=file, port=2222, data="/from/option")
    assert listener(config) == ("", 2222)
    assert data_directory(config) == "/from/option"
    assert config.num_partitions == 3
    sets = ["listeners=PLAINTEXT://:3333", "log.dirs=/from/set", "num.partitions=5"]
    config = up(config=file, port=2222, data="/from/option", settings=sets)
    assert listener(config) == ("", 3333)
    assert data_directory(config) == "/from/set"
    assert config.num_partitions == 5


@pytest.mark.parametrize("text", ["log.dir=/old", "log.dirs=/old"])
def test_the_old_name_of_the_directory_is_accepted(tmp_path: Path, text: str) -> None:
    file = properties(tmp_path, text)
    assert data_directory(up(config=file)) == "/old"
    assert data_directory(up(config=file, data="/new")) == "/new"
    assert data_directory(up(config=file, data="/new", settings=["log.dir=/newest"])) == "/newest"


def test_a_port_moves_the_one_listener_of_the_file(tmp_path: Path) -> None:
    file = properties(tmp_path, "listeners=PLAINTEXT://10.0.0.1:9092")
    assert listener(up(config=file, port=7)) == ("10.0.0.1", 7)
    assert listener(up(config=file, host="::1")) == ("::1", 9092)


def test_the_old_settings_of_the_address_are_used(tmp_path: Path) -> None:
    file = properties(tmp_path, "broker.id=1\nhost.name=10.0.0.1\nport=9093\n")
    assert listener(up(config=file)) == ("10.0.0.1", 9093)
    assert listener(up(config=file, port=9094)) == ("10.0.0.1", 9094)


ERAS = {
    "0.8": "port=9092\nlog.flush.interval.ms=9\nlog.cleanup.interval.mins=1\nzookeeper.connection.timeout.ms=1000000",
    "0.8.2": "port=9092\nlog.cleaner.enable=false\nreplica.lag.max.messages=4000\ncontroller.message.queue.size=10",
    "0.9": "listeners=PLAINTEXT://:9092\nnum.recovery.threads.per.data.dir=1\ninter.broker.protocol.version=0.9.0.1",
    "1.0": "transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\nlog.message.format.version=1.0",
    "3.0": "listeners=PLAINTEXT://:9092\nmetadata.log.segment.min.bytes=8388608\ncontrol.plane.listener.name=PLAINTEXT",
}
"""Kafka's version -> settings of its time, besides those that files of every version have."""


@pytest.mark.parametrize("era", ERAS)
def test_a_file_of_the_time_of_zookeeper_is_understood(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = "broker.id=0\nsocket.send.buffer.bytes=102400\nlog.dirs=/tmp/kafka-logs\nzookeeper.connect=localhost:2181\n"
    config = up(config=properties(tmp_path, f"{every}{ERAS[era]}\n"))
    assert (config.node_id, config.zookeeper_connect) == (0, "localhost:2181")
    assert listener(config) == ("localhost" if era == "1.0" else "", 9092), "without listeners on this machine only"
    assert not caplog.messages


def test_names_of_plug_ins_in_a_file_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # As in Kafka, and in one line. A name that is nearly that of a setting is refused, and so is any other of --set.
    foreign = {
        "confluent.support.metrics.enable": "true",
        "confluent.support.customer.id": "anonymous",
        "confluent.license.topic.replication.factor": "1",
        "cruise.control.metrics.topic.num.partitions": "1",
    }
    lines = "".join(f"{name}={value}\n" for name, value in foreign.items())
    file = properties(tmp_path, f"{lines}num.partitions=3\n")
    with caplog.at_level(logging.WARNING):
        assert up(config=file).num_partitions == 3
    assert caplog.messages == [f"{file}: unknown settings are ignored: {', '.join(foreign)}"]
    for typo in ("num.partition", "min.insync.replica", "log.retention", "brokerid", "auto.create.topics"):
        with pytest.raises(CommandError, match=f"unknown setting '{typo}'; did you mean"):
            up(config=properties(tmp_path, f"{typo}=3\n"))
    for name in foreign:
        with pytest.raises(CommandError, match="unknown setting"):
            up(settings=[f"{name}=1"])


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_zookeeper_is_not_a_single_broker(text: str) -> None:
    with pytest.raises(CommandError) as raised:
        up(zookeeper=text)
    assert str(raised.value) == "--zookeeper: it names no server, as in zk1:2181,zk2:2181/path"


def test_a_relative_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_directory(up(data="here")) == str(tmp_path / "here")
    # Cordoned directories are compared with them.
    config = up(settings=["log.dirs=a,b", "cordoned.log.dirs=b"])
    assert [config.is_cordoned(path) for path in config.log_dirs or ()] == [False, True]
    assert up(settings=["log.dirs=a,b", "cordoned.log.dirs=*"]).cordoned_log_dirs == ("*",)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"settings": ["num.partitionz=3"]}, "num.partitions"),
        ({"settings": ["num.partitions=many"]}, "num.partitions"),
        ({"settings": ["num.partitions"]}, "key=value"),
        ({"settings": ["=3"]}, "key=value"),
        ({"port": 70000}, "70000"),
        ({"port": -1}, "-1"),
        ({"config": "/nowhere/server.properties"}, "/nowhere/server.properties"),
        ({"host": "two words"}, "two words"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line_that_names_it(given: dict[str, Any], named: str) -> None:
    with pytest.raises(CommandError) as refused:
        up(**given)
    assert refused.value.status == USAGE_ERROR
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="not UTF-8 text"):
        up(config=str(path))


def test_several_listeners_cannot_be_moved_with_one_port(tmp_path: Path) -> None:
    file = properties(
        tmp_path,
        "listeners=A://:1,B://:2\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=A",
    )
    with pytest.raises(CommandError, match="several listeners"):
        up(config=file, port=3)
    assert len(up(config=file).endpoints.bound) == 2


def test_a_broker_may_have_several_data_directories() -> None:
    assert up(settings=["log.dirs=/a,/b"]).log_dirs == ("/a", "/b")


@pytest.mark.parametrize(
    ("host", "address"),
    [("", "localhost:9"), ("0.0.0.0", "localhost:9"), ("::", "localhost:9"), ("::1", "[::1]:9"), ("box", "box:9")],
)
def test_the_address_is_one_that_a_client_can_type(host: str, address: str) -> None:
    assert address_of(Listener("PLAINTEXT", host, 0, "PLAINTEXT"), 9) == address


def test_the_port_of_the_metrics_is_off_unless_given() -> None:
    assert up().metrics_port is None
    assert up(metrics_port=9308).metrics_port == 9308
    assert up(metrics_port=9308, settings=["metrics.port=0"]).metrics_port == 0
    with pytest.raises(CommandError, match=r"metrics\.port: 65536"):
        up(metrics_port=65536)
