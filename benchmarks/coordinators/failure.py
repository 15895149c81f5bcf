"""The error of every benchmark in this folder."""


class BenchmarkFailure(Exception):
    """A broker gave an unexpected answer, or took too long: what was measured would mean nothing."""
