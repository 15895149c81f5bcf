"""How far a group is behind in a partition: in records, and in seconds.

The lag in seconds is the age of the first record that the group has not read: how long it has been waiting. A group
that has read everything has a lag of 0 seconds, however long nothing was written. The age counts from the timestamp
that the producer (or, with LogAppendTime, the broker) gave the record, so it is only as good as that clock. Broker and
console both go by these functions.
"""


def count_lag(committed: int, end: int) -> int:
    """Records between the committed offset and the end. A commit beyond the end, as of a topic made anew, is no lag."""
    return max(end - committed, 0)


def find_age_s(timestamp_ms: int, now_ms: int) -> float:
    """The age of a record. A timestamp in the future counts as now."""
    return max(now_ms - timestamp_ms, 0) / 1000
