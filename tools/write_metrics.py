"""Writes docs/metrics.md from the catalogue: every metric, with its kind, labels and meaning.

python tools/write_metrics.py          # writes the page; a test fails when it is out of date
"""

from pathlib import Path

from ottla.observability.catalogue import FAMILIES
from ottla.observability.metrics import BOUNDS_MS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics and logs

How to watch a broker with Prometheus, what every metric means, and how to read the broker's log.

```sh
ottla up --metrics-port 9308
curl localhost:9308/metrics
curl localhost:9308/health
```

`/metrics` has the text format of Prometheus; `/health` answers 200 `running` or 503 `stopping`. The port is opened on
the first listener's host. The setting `metrics.port` does the same; 0 takes a free port; without it there is no such
port. The port has no access control, so bind it where only those who may look can reach it.

[Monitoring](monitoring.md) has the configuration of Prometheus, alert rules and a board for Grafana.

Names are those that the JMX exporter gives to Kafka's metrics, and those of kafka_exporter (`kafka_consumergroup_*`,
`kafka_topic_*`), so dashboards and alerts for Kafka find most of what they look for. Other metrics begin with `ottla_`,
and those of the process with `process_` (Linux only).

- Topic metrics have one series for each topic, and one without a label, which is their sum, as in Kafka. Sum over one
  kind only: `sum(rate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[1m]))`. The sum never decreases, not
  even when a topic is deleted.
- Kafka's `totaltimems` is a summary; here it is a histogram, so quantiles can be computed over many brokers:
  `histogram_quantile(0.99, sum by (le, request) (rate(kafka_network_requestmetrics_totaltimems_bucket[1m])))`.
- What kafka_exporter tells once for a whole cluster is told by one broker each: partitions by their leader, groups by
  their coordinator, `kafka_brokers`, `kafka_broker_info` and `kafka_topic_partitions` by the controller. Sums over all
  brokers count everything once.
- The lag of a group is computed when the page is asked for, and costs nothing otherwise. `kafka_consumergroup_lag`
  counts records up to the high watermark, transaction markers included. `ottla_consumergroup_lag_seconds` is the age
  of the first record that the group has not read, by the record's timestamp; it is 0 if the group has read everything,
  however old that is. For partitions without a replica on the coordinator of the group their leaders are asked; the
  broker's user needs the right to describe and read the topic then, and at most 100 ages are asked for.
- The times of a request add up as in Kafka: `requestqueuetimems`, `localtimems` and `remotetimems` are parts of
  `totaltimems`. A broker has one event loop: `ottla_loop_delay_ms` says how late it comes to new work, and the two
  `avgidle_percent` are the same number, from 0 (busy) to 1.
- The number of series is bounded. Labels hold only names that the broker accepted or gave: topics that exist, its
  listeners, its APIs, Kafka's error codes. At most `metrics.topics.max` topics and `metrics.partitions.max` partitions
  (1000 each; 0 switches them off) have series of their own, the oldest first, and so have at most `metrics.groups.max`
  groups (1000) with `metrics.offsets.max` committed offsets (5000); the `_left_out` metrics count the others.
  Requests and errors appear with their first occurrence. What clients name themselves is bounded too: client ids with
  quotas (`metrics.quotas.max`), and the metrics that clients push (10,000 series, 1,000 of one client; names are cut).
- A broker with a metrics port asks clients for their own metrics (KIP-714), if a subscription says so:
  `kafka-client-metrics.sh --alter --name mine --metrics org.apache.kafka.producer. --interval 30000 --match
  client_id=orders.*`. They are `ottla_client_metric` (gauges) and `ottla_client_metric_total` (sums), with the name
  that the client gives them in the label `metric`. They go when the client has been silent for three intervals.
- Counting is always on and costs less than a microsecond per request. The page of a large broker is written in pieces,
  and clients are served in between.
"""

LOGS = """\
## Logs

Each event is one line on stderr: time, level, logger, message, and details as key=value.

    2026-05-04 12:30:00.123 DEBUG requests: Produce v13 client=rdkafka address=127.0.0.1:50316 correlation=3 ms=0.183

Control characters are escaped and tracebacks are indented, so nothing that a client sends can look like a line of the
broker. `--log-level` sets the level at the start. Levels of single loggers can be changed while the broker runs, as
settings of the resource type BROKER_LOGGER (IncrementalAlterConfigs), with Kafka's Java admin client for example. The
loggers are named `ottla.<part>`; log lines leave out the `ottla.`.

`ottla.requests` at DEBUG logs every answered request. It has to be set by name: `--log-level debug` does not include
it, because its lines would hide all others.
"""


def build_page() -> str:
    lines = ["## All metrics", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.name}` | {family.kind} | {labels} | {family.help} |")
    bounds = ", ".join(f"{bound:g}" for bound in BOUNDS_MS)
    buckets = f"Upper bounds of the histogram's buckets, in milliseconds: {bounds}."
    return "\n".join([INTRODUCTION, *lines, "", buckets, "", LOGS])


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
