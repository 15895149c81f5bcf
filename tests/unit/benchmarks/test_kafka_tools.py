"""Parsing of the output of Apache Kafka's load generators."""

import pytest

from benchmarks.loads.jobs import JobFailure
from benchmarks.loads.kafka_tools import MEAN_MS, RECORDS_PER_SECOND, parse_last

PRODUCED = """\
100000 records sent, 50000.0 records/sec (47.68 MB/sec), 3.10 ms avg latency, 200.00 ms max latency, \
1 ms 50th, 9 ms 95th, 44 ms 99th, 60 ms 99.9th.
75000 steady state records sent, 90909.1 records/sec (86.70 MB/sec), 2.00 ms avg latency, 20.00 ms max latency, \
1 ms 50th, 5 ms 95th, 9 ms 99th, 12 ms 99.9th.
"""


def test_the_line_of_the_steady_state_is_used() -> None:
    # The line without the records that warmed up the client comes last.
    assert parse_last(RECORDS_PER_SECOND, PRODUCED) == 90909.1


def test_a_mean_is_read() -> None:
    # The percentiles below it are whole milliseconds and say nothing here.
    assert parse_last(MEAN_MS, "0\t12.5\nAvg latency: 0.4321 ms\nPercentiles: 50th = 0, 99th = 1\n") == 0.4321


def test_a_tool_that_prints_nothing_has_failed() -> None:
    # The tool may end with status 0 all the same.
    with pytest.raises(JobFailure, match="no result"):
        parse_last(RECORDS_PER_SECOND, "org.apache.kafka.common.errors.TimeoutException")
