"""`ottla doctor`: usual mistakes are found, and how to mend them is said; a sound set-up has none; no secret leaks."""

import json
import os
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.cli.cluster.overview import BrokerState, Overview, PartitionState
from ottla.cli.doctor import data, machine
from ottla.cli.doctor.connecting import check_settings, find_fix
from ottla.cli.doctor.finding import NOTE, OK, PROBLEM
from ottla.cli.doctor.health import examine_overview
from ottla.cli.doctor.redacting import Redactor, find_secrets
from ottla.testing import LocalBroker
from ottla.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.unit.cli.every_command import run


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalBroker]:
    with ottla.testing.broker(security="sasl_ssl") as broker:
        yield broker


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setattr(machine, "FILES_MIN", 16)  # the limits of the machine that runs the tests do not matter
    monkeypatch.setattr(data, "FREE_MIN_BYTES", 0)
    monkeypatch.setattr(data, "FREE_MIN_SHARE", 0.0)


def settings_of(broker: LocalBroker, **changes: str) -> list[str]:
    given = {**broker.client_settings, **{name.replace("_", "."): value for name, value in changes.items()}}
    return [word for name, value in given.items() for word in ("-X", f"{name}={value}")]


def diagnose(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    ended = run(["doctor", "--json", *arguments])
    assert ended.errors == "", ended.errors
    document = json.loads(ended.output)
    problems = [each for each in document["checks"] if each["level"] == PROBLEM]
    assert document["problems"] == len(problems)
    return ended.status, problems


def test_nothing_is_wrong_with_a_sound_set_up(secured: LocalBroker) -> None:
    ended = run(["doctor", *settings_of(secured)])
    assert (ended.status, ended.errors) == (0, ""), ended
    assert ended.output.endswith("nothing is wrong\n")
    assert "ok       connection: " in ended.output


@pytest.mark.parametrize(
    ("changes", "message", "fix"),
    [
        ({"bootstrap_servers": "localhost:1"}, "nothing listens at localhost:1", "ottla up"),
        ({"bootstrap_servers": "no-such-host.invalid:9092"}, "no-such-host.invalid", "DNS or /etc/hosts"),
        ({"security_protocol": "plaintext"}, "expect TLS", "set security.protocol to ssl or sasl_ssl"),
        ({"security_protocol": "ssl"}, "closed", "sasl_ssl"),
        ({"sasl_password": "wrong-password"}, "uthentication", "check sasl.username and sasl.password"),
        ({"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token": "x"}, "does not offer", "set sasl.mechanism"),
        ({"ssl_ca_location": "/nowhere/ca.pem"}, "ssl.ca.location", "correct it"),
        ({"sasl_usernam": "alice"}, "no client knows 'sasl.usernam'", "did you mean 'sasl.username'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_mistakes_of_a_client_are_found(secured: LocalBroker, changes: dict[str, str], message: str, fix: str) -> None:
    status, problems = diagnose(*settings_of(secured, **changes))
    assert status == 1
    assert any(message in each["message"] and fix in each["fix"] for each in problems), problems


def test_a_certificate_of_another_authority_and_a_name_that_it_lacks(secured: LocalBroker, tmp_path: Path) -> None:
    assert run(["certificates", str(tmp_path / "other")]).status == 0
    _, problems = diagnose(*settings_of(secured, ssl_ca_location=str(tmp_path / "other" / "ca.pem")))
    assert any("set ssl.ca.location" in each["fix"] for each in problems), problems
    port = secured.bootstrap.rpartition(":")[2]
    _, problems = diagnose(*settings_of(secured, bootstrap_servers=f"0.0.0.0:{port}"))
    assert any("make one for this address" in each["fix"] for each in problems), problems


def test_an_address_that_clients_cannot_reach() -> None:
    # The broker answers at its port, and tells clients of another.
    with ottla.testing.broker(advertised_listeners="PLAINTEXT://nowhere.invalid:9092") as broker:
        port = broker.bootstrap.rpartition(":")[2]
        status, problems = diagnose("-b", f"127.0.0.1:{port}")
    assert status == 1
    (problem,) = [each for each in problems if each["subject"] == "advertised listeners"]
    assert "broker 1 tells clients to connect to nowhere.invalid:9092" in problem["message"]
    assert "advertised.listeners of broker 1" in problem["fix"]


def test_records_of_the_future() -> None:
    with ottla.testing.broker() as broker:
        broker.create_topic("late", min_insync_replicas="2")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": False, "acks": 1})
        producer.produce("late", b"x", timestamp=int(time.time() + 600) * 1000)
        assert producer.flush(PATIENCE_S) == 0
        status, problems = diagnose("-b", broker.bootstrap)
    assert status == 1
    texts = [each["message"] for each in problems]
    assert any("late-0 has records that are more than 60 s in the future" in text for text in texts), texts
    assert not any("min.insync.replicas" in text for text in texts), "the topic can be written to"


def test_partitions_in_trouble() -> None:
    def partition(name: str, leader: int, replicas: tuple[int, ...], in_sync: tuple[int, ...]) -> PartitionState:
        return PartitionState(TopicPartition(name, 0), leader, replicas, in_sync, ())

    brokers = [BrokerState(number, f"host:{number}", None, number == 3) for number in (1, 2, 3)]
    partitions = [
        partition("dead", -1, (3,), (3,)),
        partition("behind", 1, (1, 2, 3), (1,)),
        partition("__consumer_offsets", 1, (1,), (1,)),
        partition("fine", 1, (1, 2), (1, 2)),
    ]
    overview = Overview("cluster", brokers, partitions, {"behind": 2, "dead": 2}, [])
    text = "\n".join(f"{each.message} -> {each.fix}" for each in examine_overview(overview))
    assert "broker 3 is not alive" in text
    assert "offline: 1 partition (dead-0)" in text
    assert "fewer replicas in sync than there should be: 1 partition (behind-0)" in text
    assert "acks=all refused, because min.insync.replicas are not in sync: 1 partition (behind-0)" in text
    assert "more replicas than there are brokers alive: 1 partition (behind-0)" in text
    assert "internal topics with so few replicas" in text and ": 1 partition (__consumer_offsets-0)" in text
    notes = [each.message for each in examine_overview(overview) if each.level == NOTE]
    (note,) = notes
    assert "above the number of replicas" in note and ": 1 partition (dead-0)" in note
    assert "fine" not in text


def test_replicas_that_a_reassignment_adds_are_not_missed() -> None:
    """They count for min.insync.replicas, as in Kafka: the partition refuses acks=all until one of them is in sync."""
    where = TopicPartition("moving", 0)
    partition = PartitionState(where, 1, (1, 2, 3), (1,), (), adding=(2, 3))
    brokers = [BrokerState(number, f"host:{number}", None, False) for number in (1, 2, 3)]
    for least, is_under in ((1, False), (2, True)):
        overview = Overview("cluster", brokers, [partition], {"moving": least}, [])
        text = "\n".join(each.message for each in examine_overview(overview))
        assert "fewer replicas in sync" not in text
        assert overview.is_under_min_in_sync(partition) == is_under
        assert ("acks=all refused" in text) == is_under
    assert partition._replace(in_sync=()).is_under_replicated


def test_this_machine() -> None:
    assert machine.check_python((3, 10, 1)).level == PROBLEM
    assert machine.check_python((3, 14, 0)).level == OK
    assert [each.level for each in machine.check_spark(None, "4.3.0", "")] == [NOTE]
    assert [each.level for each in machine.check_spark("3.5.0", "4.3.0", "")] == [PROBLEM, PROBLEM]
    assert [each.level for each in machine.check_spark("4.3.0", "4.3.0", "/nowhere/java")] == [OK, PROBLEM]
    assert machine.check_files(8).level == PROBLEM
    assert machine.check_host_name("no-such-host.invalid").level == NOTE
    assert machine.find_wanted_pyspark() is not None


def test_the_disk() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/x /mnt/far nfs4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
    assert data.find_file_system("/mnt/far/data", mounts) == "nfs4"
    assert data.find_file_system("/mnt/farther", mounts) == "ext4"
    assert data.find_file_system("/x", "") == ""
    assert [data.check_file_system("/x", kind).level for kind in ("nfs4", "tmpfs", "ext4")] == [PROBLEM, NOTE, OK]


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "FREE_MIN_SHARE", 0.05)
    assert data.check_space("/", 4, 100).level == PROBLEM
    assert data.check_space("/", 50, 100).level == OK


def test_data_directories(tmp_path: Path) -> None:
    def levels(path: Path) -> list[tuple[str, str]]:
        return [
            (each.level, each.message) for each in data.check_data(str(path), is_named=True) if each.subject == "data"
        ]

    assert levels(tmp_path / "none")[0][0] == PROBLEM
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    assert "no meta.properties: it is no broker's directory" in levels(tmp_path / "photos")[-1][1]
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "meta.properties").write_text("version=9\n")
    assert "has version '9'" in levels(tmp_path / "newer")[-1][1]
    with ottla.testing.broker() as broker:
        found = levels(Path(broker.directory))
        assert {level for level, _ in found} == {OK}
    if os.getuid():
        (tmp_path / "newer").chmod(0o500)
        assert "may not read and write" in levels(tmp_path / "newer")[0][1]


def test_ports_and_zookeeper(secured: LocalBroker) -> None:
    port = secured.bootstrap.rpartition(":")[2]
    _, problems = diagnose("--port", port, "--offline")
    assert [(each["subject"], each["message"]) for each in problems] == [("port", f"{port} is in use")]
    _, problems = diagnose("--zookeeper", "localhost:1/ottla", *settings_of(secured))
    assert [each["subject"] for each in problems] == ["zookeeper"]
    assert "zookeeper.connect" in problems[0]["fix"]


def test_settings_of_java_clients_are_known() -> None:
    java = {"bootstrap.servers": "localhost:9092", "key.deserializer": "org.apache.X", "ssl.protocol": "TLSv1.3"}
    assert [each.level for each in check_settings(java)] == [OK]
    (found,) = check_settings({"bootstrap.servers": "localhost:9092", "my.own.thing": "1"})
    assert found.level == NOTE
    assert find_fix("host: certificate has expired").startswith("renew the broker's certificate")


SECRETS = ("Passw0rd-key", "Passw0rd-store", "Passw0rd-registry", "Passw0rd-jaas", "Passw0rd-log", "Passw0rd-profile")


def test_the_bundle_has_no_secret(secured: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Secrets of settings, variables, profiles, URLs and logs. The broker's own settings are asked for too.
    log = tmp_path / "broker.log"
    log.write_text(
        f"started\nlogin failed: {secured.client_settings['sasl.password']}\nsasl.password={SECRETS[4]}\n"
        f"registry http://ann:{SECRETS[2]}@registry/\nAuthorization: Basic {SECRETS[4]}0000\n"
        f"-----BEGIN PRIVATE KEY-----\n{SECRETS[4]}\n-----END PRIVATE KEY-----\nended\n"
    )
    monkeypatch.setenv("OTTLA_CLIENT_SSL_KEY_PASSWORD", SECRETS[1])
    profile = ["-b", "localhost:1", "-X", f"sasl.password={SECRETS[5]}", "-X", f"bearer.auth.token={SECRETS[5]}"]
    assert run(["profile", "create", "other", *profile]).status == 0
    bundle = tmp_path / "bundle.zip"
    jaas = f'x.PlainLoginModule required username="ann" password="{SECRETS[3]}";'
    more = [f"basic.auth.user.info=ann:{SECRETS[2]}", f"schema.registry.url=http://ann:{SECRETS[2]}@registry"]
    arguments = [
        *settings_of(secured),
        *(word for each in (*more, f"sasl.jaas.config={jaas}") for word in ("-X", each)),
    ]
    ended = run(["doctor", *arguments, "--bundle", str(bundle), "--log", str(log)])
    assert f"bundle written to {bundle}" in ended.output, ended
    secrets = (*SECRETS, secured.client_settings["sasl.password"])
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"doctor.json", "versions.json", "client-settings.json", "cluster.json", "broker-1.json"} <= files.keys()
    for name, text in files.items():
        assert not [secret for secret in secrets if secret in text], name
    assert "started" in files["logs/1-broker.log"] and "ended" in files["logs/1-broker.log"]
    assert json.loads(files["client-settings.json"])["sasl.username"] == secured.client_settings["sasl.username"]
    assert "log.segment.bytes" in files["broker-1.json"]
    assert bundle.stat().st_mode & 0o077 == 0
    assert run(["doctor", "--offline", "--bundle", str(tmp_path / "none" / "x.zip")]).status == 1
    assert run(["doctor", "--offline", "--bundle", str(bundle), "--log", "/nowhere"]).status == 1


def test_what_is_redacted() -> None:
    redactor = Redactor(find_secrets({"sasl.password": "hunter22", "client.id": "hunter"}))
    assert redactor.redact("hunter22 hunter") == "(secret) hunter"
    assert redactor.redact('{"ssl.key.password": "a b"}') == '{"ssl.key.password": "(secret)"}'
    assert redactor.redact("token: abc, next") == "token: (secret), next"
    assert "eyJ" not in redactor.redact("jwt eyJhbGciOi.eyJzdWIiOi.c2ln end")


@pytest.mark.parametrize(
    "place", ["pyspark-4.3.0.dist-info/METADATA", "pyspark-4.3.0.egg-info/PKG-INFO", "pyspark-4.3.0-py3.11.egg-info"]
)
def test_the_version_of_a_package_is_found_however_it_was_installed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyspark_extension-1.0.0.dist-info").mkdir()
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 4.3.0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "missing"), str(tmp_path)])
    assert machine.find_version("pyspark") == "4.3.0"
    assert machine.find_version("numba") is None
