"""How much of its work a test does: a sample in `make test`, everything with OTTLA_SAMPLES=full (`make test-all`)."""

import os

FULL = os.environ.get("OTTLA_SAMPLES") == "full"


def sample_size(usual: int, full: int) -> int:
    """A number of examples, seeds or records."""
    return full if FULL else usual
