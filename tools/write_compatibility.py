"""Writes docs/compatibility.md from the handlers: which APIs and versions this broker answers.

python tools/write_compatibility.py          # writes the page; a test fails when it is out of date
"""

from pathlib import Path

from ottla.broker.handler_table import HandlerTable
from ottla.wire import frames

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

# Keys that brokers of Apache Kafka use among themselves or answer only on the listener of a controller.
CONTROLLER_ONLY = frozenset((52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82))

# Without the versions that Kafka 4.3 answers only with unstable API versions enabled: InitProducerId 6.
STABLE = {22: range(0, 6)}


def build_page() -> str:
    table = HandlerTable()
    lines = [
        "# Compatibility",
        "",
        "Which APIs of Apache Kafka 4.3 the broker answers, and in which versions. A client that uses an API which is",
        "`not yet` there gets its connection closed, as from any broker that does not advertise the API; clients ask",
        "with ApiVersions first. Without an authorizer, DescribeAcls, CreateAcls and DeleteAcls are answered",
        "SECURITY_DISABLED, as by Apache Kafka.",
        "",
        "This page is written by `tools/write_compatibility.py` from the handlers; ApiVersions answers from the same",
        "table.",
        "",
        "| key | API | Kafka 4.3 | Ottla |",
        "|--:|---|---|---|",
    ]
    for api in frames.list_kafka_apis():
        if api.key in CONTROLLER_ONLY:
            continue
        here = format_versions(table[api.key].versions) if api.key in table else "not yet"
        lines.append(f"| {api.key} | {api.name} | {format_versions(STABLE.get(api.key, api.versions))} | {here} |")
    return "\n".join([*lines, ""])


def format_versions(versions: range) -> str:
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
