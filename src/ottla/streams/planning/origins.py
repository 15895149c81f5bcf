"""Where the rows of a subtopology come from: source partitions that hold up the closing of its windows."""

from dataclasses import dataclass

from ottla.streams.planning.plan import PARCELS, AppPlan


@dataclass(frozen=True)
class Origins:
    """Source topics of a subtopology, also those that it hears of through repartition topics."""

    own: frozenset[str] = frozenset()
    """A task gets rows of its own partition of these topics only."""
    others: frozenset[str] = frozenset()
    """A task gets rows of any partition of these topics."""

    @property
    def topics(self) -> frozenset[str]:
        return self.own | self.others


def find_origins(plan: AppPlan) -> dict[str, Origins]:
    """The origins of each subtopology by its name."""
    found = {
        each.name: Origins(frozenset(source.topic for source in each.sources if source.holds != PARCELS))
        for each in plan.subtopologies
    }
    senders = [
        (each.name, sink.topic, sink.partition_by is not None)
        for each in plan.subtopologies
        for sink in each.sinks
        if sink.holds == PARCELS
    ]
    while True:
        before = dict(found)
        for each in plan.subtopologies:
            for sender, topic, is_exchange in senders:
                if any(source.topic == topic for source in each.sources):
                    mine, theirs = found[each.name], found[sender]
                    own, others = (frozenset[str](), theirs.topics) if is_exchange else (theirs.own, theirs.others)
                    found[each.name] = Origins(mine.own | own, mine.others | others)
        if found == before:
            return found
