"""How long a test waits for something that must happen.

The limit only keeps a hang from lasting forever: no result may depend on how fast the machine is. A test that needs a
time-out of a client or a broker to expire sets that time-out itself, and lets nothing else depend on it. With
OTTLA_PATIENCE_S, tests that are known to wait in vain do so for less long (`tests/scenarios/test_defences.py`).
"""

import os

PATIENCE_S = int(os.environ.get("OTTLA_PATIENCE_S", "300"))
PATIENCE_MS = PATIENCE_S * 1000
