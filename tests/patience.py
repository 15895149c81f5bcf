"""How long a test waits for something that must happen.

The limit only keeps a hang from lasting forever: no result may depend on how fast the machine is. A test that needs a
time-out of a client or a broker to expire sets that time-out itself, and lets nothing else depend on it. With
OTTLA_PATIENCE_S, tests that are known to wait in vain do so for less long (`tests/scenarios/test_defences.py`).
"""

import os
import time
from collections.abc import Callable, Iterator

PATIENCE_S = int(os.environ.get("OTTLA_PATIENCE_S", "300"))
PATIENCE_MS = PATIENCE_S * 1000

PAUSE_S = 0.02
PAUSE_MAX_S = 0.5


def ask_now_and_then(say: Callable[[], object]) -> Iterator[None]:
    """For a loop that asks whether something has happened: the pauses are thrice as long as the questions take, within
    limits, so that asking leaves the processor to what is waited for. At the end of patience it fails with `say`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = time.monotonic()
        yield
        assert time.monotonic() < deadline, say()
        time.sleep(min(max(3 * (time.monotonic() - asked), PAUSE_S), PAUSE_MAX_S))
