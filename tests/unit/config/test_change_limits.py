"""How far one change may go while a broker runs. The same changes were made to Apache Kafka 4.3.1."""

import pytest

from ottla.config import BrokerConfig, ConfigError
from ottla.config.change_limits import THREAD_COUNTS, check_change

IO, CLEANERS, DEDUPE = "num.io.threads", "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
RETENTION, LOCAL = "log.retention.ms", "log.local.retention.ms"
BYTES, LOCAL_BYTES = "log.retention.bytes", "log.local.retention.bytes"


def is_allowed(before: dict[str, str], change: dict[str, str | None]) -> bool:
    config = BrokerConfig.of(before)
    try:
        check_change(config, config.with_changes(change))
    except ConfigError as error:
        assert str(error).partition(":")[0] in (*THREAD_COUNTS, DEDUPE, LOCAL, LOCAL_BYTES)
        return False
    return True


@pytest.mark.parametrize(("old", "least", "most"), [(1, 1, 2), (2, 1, 4), (3, 1, 6), (8, 4, 16), (9, 4, 18)])
@pytest.mark.parametrize("name", THREAD_COUNTS)
def test_a_number_of_threads_is_halved_or_doubled_at_most(name: str, old: int, least: int, most: int) -> None:
    before = {name: str(old)}
    assert is_allowed(before, {name: str(least)}) and is_allowed(before, {name: str(most)})
    assert not is_allowed(before, {name: str(most + 1)})
    if least > 1:
        assert not is_allowed(before, {name: str(least - 1)})


@pytest.mark.parametrize(
    ("before", "change", "allowed"),
    [
        ({IO: "32"}, {IO: None}, False),  # 8 is the default
        ({IO: "16"}, {IO: None}, True),
        ({CLEANERS: "1"}, {CLEANERS: "0"}, False),
        ({}, {DEDUPE: "1048576"}, False),
        ({}, {DEDUPE: "1048577"}, True),
        ({}, {DEDUPE: "-77"}, False),
        ({}, {CLEANERS: "2", DEDUPE: "2097152"}, False),
        ({}, {CLEANERS: "2", DEDUPE: "2097154"}, True),
        ({DEDUPE: "120"}, {IO: "9"}, True),  # another setting is changed
        ({RETENTION: "1000"}, {LOCAL: "1000"}, True),
        ({RETENTION: "1000"}, {LOCAL: "1001"}, False),
        ({RETENTION: "1000"}, {LOCAL: "-1"}, False),
        ({"log.retention.hours": "1"}, {LOCAL: "3600001"}, False),
        ({RETENTION: "-1"}, {LOCAL: "-1"}, True),
        ({RETENTION: "-1"}, {LOCAL: "1001"}, True),
        ({LOCAL: "1001"}, {RETENTION: "1000"}, False),
        ({}, {RETENTION: "1000"}, True),
        ({BYTES: "1000"}, {LOCAL_BYTES: "1000"}, True),
        ({BYTES: "1000"}, {LOCAL_BYTES: "1001"}, False),
        ({BYTES: "1000"}, {LOCAL_BYTES: "-1"}, False),
        ({}, {LOCAL_BYTES: "-1"}, True),
    ],
)
def test_what_a_running_broker_can_become(before: dict[str, str], change: dict[str, str | None], allowed: bool) -> None:
    assert is_allowed(before, change) == allowed
