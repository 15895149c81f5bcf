"""The error of every benchmark in this folder."""


class BenchmarkFailure(Exception):
    """A cluster did not reach an expected state in time: what was measured would mean nothing."""
