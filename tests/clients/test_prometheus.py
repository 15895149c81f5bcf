"""A real Prometheus with the files of `ottla generate`: it scrapes a broker at work, and its alerts fire."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer

import ottla.testing
from ottla.cli import main
from ottla.cli.generate.alerts import Thresholds, build_alerts
from ottla.cli.generate.board import build_rows
from ottla.cli.ports import pick_port
from ottla.testing import LocalBroker
from tests.needs import require_program
from tests.patience import PATIENCE_S


class Server(NamedTuple):
    port: int
    process: "subprocess.Popen[bytes]"

    def ask(self, path: str, **parameters: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(parameters)}"
        with urlopen(address, timeout=PATIENCE_S) as answer:
            return json.loads(answer.read())["data"]

    def is_ready(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=PATIENCE_S):
                return True
        except (URLError, ConnectionError):
            return False


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Server]:
    """A server with the configuration and the rules that `ottla generate` writes."""
    program = require_program("prometheus")
    assert main(["generate", "prometheus", "--target", target, "--interval", "2s", "-o", f"{directory}/"]) == 0
    assert main(["generate", "alerts", "-o", f"{directory}/"]) == 0
    port = pick_port()
    arguments = [
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
    try:
        server = Server(port, process)
        deadline = time.monotonic() + PATIENCE_S
        while not server.is_ready():
            assert process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait()


class Work(threading.Thread):
    """A producer, a group that reads slowly, and a client that fails, until they are told to stop."""

    def __init__(self, broker: LocalBroker) -> None:
        super().__init__()
        self._broker = broker
        self._over = threading.Event()

    def run(self) -> None:
        settings = self._broker.find_client_settings()
        producer = Producer(settings)
        reader = Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
        stranger = Consumer({**settings, "group.id": "strangers", "log_level": 0})
        reader.subscribe(["orders"])
        stranger.subscribe(["no-such-topic"])
        try:
            while not self._over.wait(0.05):
                for number in range(10):
                    producer.produce("orders", str(number).encode())
                producer.poll(0)
                message = reader.poll(0.05)
                if message is not None and message.error() is None:
                    reader.commit(message=message)
                stranger.poll(0)
        finally:
            producer.flush(PATIENCE_S)
            reader.close()
            stranger.close()

    def stop(self) -> None:
        self._over.set()
        self.join()


def resolve(expression: str) -> str:
    """The expression as Grafana sends it, with the variables of the board."""
    return expression.replace("$__rate_interval", "10m").replace("$job", "ottla").replace("$instance", ".*")


def test_every_panel_has_samples(tmp_path: Path) -> None:
    # A broker with logins, under load: each expression of the board returns something, and each rule is evaluated.
    require_program("prometheus")
    queries = [query.expression for row in build_rows() for panel in row.panels for query in panel.queries]
    with ottla.testing.broker(security="sasl_plaintext", metrics_port=0) as broker:
        broker.create_topic("orders", partitions=2)
        work = Work(broker)
        work.start()
        try:
            with prometheus(tmp_path, f"127.0.0.1:{broker.metrics_port}") as server:
                missing, deadline = queries, time.monotonic() + PATIENCE_S
                while missing:
                    assert time.monotonic() < deadline, missing
                    time.sleep(0.5)
                    missing = [each for each in missing if not server.ask("query", query=resolve(each))["result"]]
                rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
                assert len(rules) == len(build_alerts(Thresholds()))
                assert not [rule["name"] for rule in rules if rule["health"] == "err"]
        finally:
            work.stop()


# Alerts

DOWN = 'kafka_network_requestmetrics_errors_total{instance="b",request="Produce",error="%s"}'
FIRING: dict[str, tuple[tuple[str, str], ...]] = {
    "OttlaBrokerDown": (('up{job="ottla",instance="b"}', "0x60"),),
    "OttlaOfflinePartitions": (("kafka_controller_kafkacontroller_offlinepartitionscount", "1x60"),),
    "OttlaNoController": (("kafka_controller_kafkacontroller_activecontrollercount", "0x60"),),
    "OttlaUnderMinIsr": (("kafka_server_replicamanager_underminisrpartitioncount", "2x60"),),
    "OttlaUnderReplicated": (("kafka_server_replicamanager_underreplicatedpartitions", "2x60"),),
    "OttlaUncleanElection": (("kafka_controller_controllerstats_uncleanleaderelections_total", "0x50 1x10"),),
    "OttlaDiskLow": (
        ('ottla_log_directory_free_bytes{logdirectory="/d"}', "5x60"),
        ('ottla_log_directory_total_bytes{logdirectory="/d"}', "100x60"),
    ),
    "OttlaDiskFilling": (
        ('ottla_log_directory_free_bytes{logdirectory="/d"}', "490-2x60"),
        ('ottla_log_directory_total_bytes{logdirectory="/d"}', "1000x60"),
    ),
    "OttlaDirectoryOffline": (('kafka_log_logmanager_logdirectoryoffline{logdirectory="/d"}', "1x60"),),
    "OttlaUncleanableLogs": (('kafka_log_logcleanermanager_uncleanable_partitions_count{logdirectory="/d"}', "1x60"),),
    "OttlaFailedLogins": (
        ('kafka_server_socketservermetrics_failed_authentication_total{listener="SSL"}', "0+120x60"),
    ),
    "OttlaErrorShare": (
        (DOWN % "NOT_LEADER_OR_FOLLOWER", "0+10x60"),
        ('kafka_network_requestmetrics_requests_total{instance="b",request="Produce",version="1"}', "0+100x60"),
    ),
    "OttlaLoopBusy": (("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", "0.05x60"),),
    "OttlaLagGrowing": (
        ('ottla_consumergroup_lag_seconds{consumergroup="g",topic="t",partition="0"}', "0+60x60"),
        ('kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}', "0+10x60"),
    ),
    "OttlaHangingTransaction": (("kafka_server_replicamanager_partitionswithlatetransactionscount", "1x60"),),
}
SLOW = {"Produce": "totaltimems", "Fetch": "localtimems"}
SILENT: dict[str, tuple[tuple[str, str], ...]] = {
    "OttlaErrorShare": (
        (DOWN % "REBALANCE_IN_PROGRESS", "0+10x60"),
        ('kafka_network_requestmetrics_requests_total{instance="b",request="Produce",version="1"}', "0+100x60"),
    ),
    "OttlaUnderReplicated": (("kafka_server_replicamanager_underreplicatedpartitions", "0x57 2x3"),),
    "OttlaDiskFilling": (
        ('ottla_log_directory_free_bytes{logdirectory="/d"}', "490x60"),
        ('ottla_log_directory_total_bytes{logdirectory="/d"}', "1000x60"),
    ),
    "OttlaLagGrowing": (  # it is late, but catches up
        ('ottla_consumergroup_lag_seconds{consumergroup="g",topic="t",partition="0"}', "4000-10x60"),
        ('kafka_consumergroup_lag_sum{consumergroup="g",topic="t"}', "4000-10x60"),
    ),
}


def list_slow(request: str) -> tuple[tuple[str, str], ...]:
    name = f'kafka_network_requestmetrics_{SLOW[request]}_bucket{{instance="b",request="{request}",le="%s"}}'
    return ((name % "100", "0x60"), (name % "2500", "0+1x60"), (name % "5000", "0+100x60"), (name % "+Inf", "0+100x60"))


def describe_test(name: str, series: tuple[tuple[str, str], ...], count: int) -> dict[str, Any]:
    """One test of promtool: after an hour of these series, so many alerts of this name are firing."""
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                "eval_time": "60m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
        ],
    }


def test_each_alert_fires(tmp_path: Path) -> None:
    # promtool plays an hour of samples to the rules. Some alerts are also shown what looks alike and is no trouble.
    promtool = require_program("promtool")
    assert main(["generate", "alerts", "-o", f"{tmp_path}/rules.yml"]) == 0
    subprocess.run([promtool, "check", "rules", f"{tmp_path}/rules.yml"], check=True, capture_output=True)
    slow = {f"Ottla{request}P{share}": list_slow(request) for request in SLOW for share in (95, 99)}
    firing = {**FIRING, **slow}
    assert set(firing) == {alert.name for alert in build_alerts(Thresholds())}
    tests = [describe_test(name, series, 1) for name, series in firing.items()]
    tests += [describe_test(name, series, 0) for name, series in SILENT.items()]
    plan = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(plan))  # JSON is YAML too
    result = subprocess.run(
        [promtool, "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_texts_of_alerts_use_labels_that_are_there() -> None:
    # A label that an expression does not keep would be an empty word in the message.
    for alert in build_alerts(Thresholds()):
        named = set(re.findall(r"\$labels\.(\w+)", alert.summary))
        kept = re.findall(r"\b(?:by) \(([^)]*)\)", alert.expression)
        if kept:
            assert named <= set(kept[0].split(", ")), alert.name
