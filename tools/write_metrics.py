"""Writes docs/metrics.md from the catalogue: every metric, with its kind, labels and meaning.

python tools/write_metrics.py          # writes the page; a test fails when it is out of date
"""

from pathlib import Path

from ottla.observability.catalogue import FAMILIES
from ottla.observability.metrics import BOUNDS_MS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics and logs

    ottla up --metrics-port 9308

serves `/metrics` in the text format of Prometheus and `/health` (200 `running`, 503 `stopping`) on the first
listener's host. `metrics.port` in a file or with `--set` does the same; 0 takes a free port; without it nobody listens.
The port has no access control: bind it where only those who may look can reach it.

    scrape_configs:
      - job_name: ottla
        static_configs:
          - targets: ["localhost:9308"]

Names are those that the JMX exporter gives to Kafka's metrics, so dashboards and alerts for Kafka find most of what
they look for. What Kafka has no name for begins with `ottla_`, and what every process has with `process_` (Linux only).

- Topic metrics have a series for each topic and one without a label, their sum, as in Kafka. Sum over one kind only:
  `sum(rate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[1m]))`. The sum never goes back, not even when a
  topic is deleted.
- Kafka's `totaltimems` is a summary; here it is a histogram, so quantiles can be taken over many brokers:
  `histogram_quantile(0.99, sum by (le, request) (rate(kafka_network_requestmetrics_totaltimems_bucket[1m])))`.
- The number of series is bounded. Labels hold only names that the broker accepted or gave: topics that exist, its
  listeners, its APIs, Kafka's error codes. At most `metrics.topics.max` topics and `metrics.partitions.max` partitions
  (1000 each; 0 switches them off) have series of their own, first come, first served; the `_left_out` metrics say how
  many have none. Requests and errors appear with their first occurrence.
- Counting is always on; it costs less than a microsecond per request. A scrape of a large broker is written in
  pieces, between which clients are served.
"""

LOGS = """\
## Logs

One event is one line on stderr: time, level, logger, message, and what it is about as key=value.

    2026-05-04 12:30:00.123 WARN  storage.recovery: a torn batch was cut off topic=orders partition=3

Control characters are written as escapes and a traceback is indented, so nothing that a client sends can pass for a
line of the broker. `--log-level` sets what is told at the start. The level of a single logger can be changed while the
broker runs, with Kafka's own tools:

    kafka-configs.sh --bootstrap-server localhost:9092 --entity-type broker-loggers --entity-name 1 \\
        --alter --add-config ottla.requests=DEBUG

`ottla.requests` at DEBUG writes a line for every answered request. It has to be set by name: `--log-level debug` is
not enough, since nobody could read anything else beside it.
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
