"""The configuration of a Prometheus server that watches brokers."""

from collections.abc import Sequence

from ottla.cli.generate.yaml_text import format_yaml

HEADER = """\
# Prometheus for Ottla, written by `ottla generate prometheus`. Brokers need a metrics.port
# (ottla up --metrics-port 9308).
"""


def write_prometheus(job: str, targets: Sequence[str], interval: str, rules: str) -> str:
    return HEADER + format_yaml(
        {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": list(targets)}]}],
        }
    )
