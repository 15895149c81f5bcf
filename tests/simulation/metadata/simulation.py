"""One seed of the simulated metadata from beginning to verdict."""

import traceback

from tests.simulation.metadata.play import Play
from tests.simulation.scenario import Verdict
from tests.simulation.trace import Trace

STEPS = 250


def run(seed: int, *, trace_lines: int | None = 200) -> Verdict:
    trace = Trace(trace_lines)
    play = Play(seed, lambda event: trace.note(trace.count, "log", event))
    problems = play.problems
    try:
        play.run(STEPS)
    except Exception:
        problems = [*problems, f"SURPRISE: {traceback.format_exc(limit=-3)}"]
    return Verdict(seed, trace.digest, problems, play.ledger.acknowledged, play.lives, list(trace.lines))
