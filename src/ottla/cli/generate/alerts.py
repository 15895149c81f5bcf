"""The alert rules, as data: what Prometheus watches, for how long, and what to do about it.

Expressions are built from the catalogue of metrics, so that no rule can name one that a broker does not have.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.cli.generate.yaml_text import Data, format_yaml
from ottla.observability import catalogue

CRITICAL, WARNING = "critical", "warning"

EXPECTED_ERRORS = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "FETCH_SESSION_ID_NOT_FOUND",
    "GROUP_ID_NOT_FOUND",
    "ILLEGAL_GENERATION",
    "MEMBER_ID_REQUIRED",
    "NOT_COORDINATOR",
    "REBALANCE_IN_PROGRESS",
    "UNKNOWN_MEMBER_ID",
)
"""Codes that clients get while everything works: when groups rebalance, and when a broker has just started."""


class Alert(NamedTuple):
    name: str
    expression: str
    lasting: str
    """For how long the expression has to hold."""
    severity: str
    summary: str
    action: str


@dataclass(frozen=True)
class Thresholds:
    """From where on somebody is told. The options of the command."""

    job: str = "ottla"
    disk_free_percent: int = 10
    produce_p95_ms: int = 500
    produce_p99_ms: int = 2000
    fetch_p95_ms: int = 100
    fetch_p99_ms: int = 500
    error_percent: int = 5
    lag_seconds: int = 300


def build_alerts(thresholds: Thresholds) -> list[Alert]:
    return [
        *_list_availability(thresholds),
        *_list_storage(thresholds),
        *_list_requests(thresholds),
        *_list_groups(thresholds),
    ]


def _list_availability(thresholds: Thresholds) -> list[Alert]:
    instance = "on {{ $labels.instance }}"
    return [
        Alert(
            "OttlaBrokerDown",
            f'up{{job="{thresholds.job}"}} == 0',
            "1m",
            CRITICAL,
            "Broker {{ $labels.instance }} does not answer",
            "Look at its log, and whether its process runs. Other brokers lead what it led.",
        ),
        Alert(
            "OttlaOfflinePartitions",
            f"sum by (job) ({catalogue.OFFLINE_PARTITIONS.name}) > 0",
            "1m",
            CRITICAL,
            "{{ $value }} partitions of {{ $labels.job }} have no leader",
            "Nobody can read or write them. Start the brokers that have their replicas: ottla cluster status.",
        ),
        Alert(
            "OttlaNoController",
            f"sum by (job) ({catalogue.ACTIVE_CONTROLLER.name}) != 1",
            "5m",
            CRITICAL,
            "{{ $labels.job }} has {{ $value }} controllers instead of one",
            "Look whether the brokers reach ZooKeeper.",
        ),
        Alert(
            "OttlaZooKeeperAway",
            f"{catalogue.STORE_CONNECTED.name} == 0",
            "1m",
            CRITICAL,
            "Broker {{ $labels.instance }} has no connection to ZooKeeper",
            "Topics are served, but no leader can be replaced and no topic created. Look at ZooKeeper and the network.",
        ),
        Alert(
            "OttlaUnderMinIsr",
            f"{catalogue.UNDER_MIN_ISR.name} > 0",
            "1m",
            CRITICAL,
            f"{{{{ $value }}}} partitions {instance} have fewer in-sync replicas than min.insync.replicas",
            "Producers with acks=all are refused. Find the brokers that are down or behind: ottla cluster status.",
        ),
        Alert(
            "OttlaUnderReplicated",
            f"{catalogue.UNDER_REPLICATED.name} > 0",
            "5m",
            WARNING,
            f"{{{{ $value }}}} partitions {instance} have replicas that are not in sync",
            "One more failure may stop or lose them. Find the brokers that are down or behind: ottla cluster status.",
        ),
        Alert(
            "OttlaUncleanElection",
            f"increase({catalogue.UNCLEAN_ELECTIONS.name}[15m]) > 0",
            "0m",
            CRITICAL,
            "Broker {{ $labels.instance }} leads partitions although it may lack acknowledged records",
            "Records may be lost. The log of the broker names the partitions.",
        ),
    ]


def _list_storage(thresholds: Thresholds) -> list[Alert]:
    free, total = catalogue.DIRECTORY_FREE.name, catalogue.DIRECTORY_TOTAL.name
    where = "{{ $labels.logdirectory }} on {{ $labels.instance }}"
    return [
        Alert(
            "OttlaDiskLow",
            f"{free} / {total} < {thresholds.disk_free_percent / 100:g}",
            "5m",
            CRITICAL,
            f"{where} has {{{{ $value | humanizePercentage }}}} free",
            "A full disk refuses writes. Shorten the retention of large topics, or add a disk.",
        ),
        Alert(
            "OttlaDiskFilling",
            f"predict_linear({free}[2h], 6 * 3600) < 0 and {free} / {total} < 0.5",
            "30m",
            WARNING,
            f"{where} will be full within six hours",
            "See which topics grow: ottla topic list, or the panel of log sizes.",
        ),
        Alert(
            "OttlaDirectoryOffline",
            f"{catalogue.DIRECTORY_OFFLINE.name} > 0",
            "0m",
            CRITICAL,
            f"{where} has failed",
            "Its replicas are offline until the disk is repaired and the broker restarted.",
        ),
        Alert(
            "OttlaUncleanableLogs",
            f"{catalogue.UNCLEANABLE_PARTITIONS.name} > 0",
            "5m",
            WARNING,
            f"{{{{ $value }}}} logs in {where} cannot be compacted",
            "They grow without end. The log of the broker says why.",
        ),
    ]


def _list_requests(thresholds: Thresholds) -> list[Alert]:
    total, local = f"{catalogue.REQUEST_TIME.name}_bucket", f"{catalogue.REQUEST_LOCAL_TIME.name}_bucket"
    limits = (
        ("Produce", total, 95, thresholds.produce_p95_ms, WARNING),
        ("Produce", total, 99, thresholds.produce_p99_ms, CRITICAL),
        # A consumer that waits for records is not slow: only the time in which the broker works on a fetch counts.
        ("Fetch", local, 95, thresholds.fetch_p95_ms, WARNING),
        ("Fetch", local, 99, thresholds.fetch_p99_ms, CRITICAL),
    )
    slow = [
        Alert(
            f"Ottla{request}P{percentile}",
            f"histogram_quantile({percentile / 100:g}, sum by (instance, le) "
            f'(rate({buckets}{{request="{request}"}}[5m]))) > {limit_ms}',
            "10m",
            severity,
            f"{percentile} % of {request} requests on {{{{ $labels.instance }}}} take up to {{{{ $value }}}} ms",
            "Look at the panels of request times, of the event loop, and of the disk.",
        )
        for request, buckets, percentile, limit_ms, severity in limits
    ]
    errors = f'{catalogue.REQUEST_ERRORS.name}{{error!~"{"|".join(EXPECTED_ERRORS)}"}}'
    return [
        *slow,
        Alert(
            "OttlaErrorShare",
            f"sum by (instance) (rate({errors}[5m])) / sum by (instance) (rate({catalogue.REQUESTS.name}[5m])) "
            f"> {thresholds.error_percent / 100:g}",
            "10m",
            WARNING,
            "{{ $value | humanizePercentage }} of the answers of {{ $labels.instance }} are errors",
            f"See which ones: sum by (request, error) (rate({catalogue.REQUEST_ERRORS.name}[5m])).",
        ),
        Alert(
            "OttlaFailedLogins",
            f"sum by (instance, listener) (rate({catalogue.FAILED_LOGINS.name}[5m])) > 1",
            "10m",
            WARNING,
            "{{ $value }} logins a second fail at {{ $labels.listener }} of {{ $labels.instance }}",
            "A client has a wrong password or certificate, or somebody is guessing. The log has the addresses.",
        ),
        Alert(
            "OttlaLoopBusy",
            f"{catalogue.HANDLER_IDLE.name} < 0.1",
            "10m",
            WARNING,
            "The event loop of {{ $labels.instance }} is busy for more than 90 % of the time",
            "Move leaders to other brokers, or set quotas for the clients that send most requests.",
        ),
    ]


def _list_groups(thresholds: Thresholds) -> list[Alert]:
    where = "(job, consumergroup, topic)"
    return [
        Alert(
            "OttlaLagGrowing",
            f"max by {where} ({catalogue.GROUP_LAG_SECONDS.name}) > {thresholds.lag_seconds} and on {where} "
            f"max by {where} (deriv({catalogue.GROUP_LAG_SUM.name}[10m])) > 0",
            "5m",
            WARNING,
            "Group {{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind in {{ $labels.topic }}, "
            "and falls back further",
            "Look whether its members run, and whether there are enough of them: ottla group describe.",
        ),
        Alert(
            "OttlaHangingTransaction",
            f"{catalogue.LATE_TRANSACTIONS.name} > 0",
            "10m",
            WARNING,
            "{{ $value }} partitions on {{ $labels.instance }} have a transaction that nobody ends",
            "Readers of committed records wait behind it: ottla txn find-hanging.",
        ),
    ]


HEADER = """\
# Alert rules for Ottla, written by `ottla generate alerts`. Prometheus reads them as one of its rule_files.
"""


def write_alerts(thresholds: Thresholds) -> str:
    rules: list[Data] = [
        {
            "alert": alert.name,
            "expr": alert.expression,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.action},
        }
        for alert in build_alerts(thresholds)
    ]
    return HEADER + format_yaml({"groups": [{"name": "ottla", "rules": rules}]})
