"""The settings of topics that an app creates for itself."""

from ottla.streams.planning.plan import InternalTopic
from ottla.streams.planning.planner import make_plan
from ottla.streams.running.internal_topics import make_config
from ottla.streams.windows import tumbling
from tests.unit.streams.planning.topologies import count, rekey, source


def make_topics() -> dict[str, InternalTopic]:
    rows = source("in")
    nodes = [count(rows, "counts"), count(rekey(rows, "value"), "windows", tumbling("1 hour"))]
    return {each.name: each for each in make_plan("app", nodes, None).internal_topics}


def test_state_is_compacted_and_parcels_are_kept_until_they_are_read() -> None:
    topics = make_topics()
    assert make_config(topics["app-counts-changelog"])["cleanup.policy"] == "compact"
    exchange = make_config(topics["app-windows-repartition"])
    assert (exchange["cleanup.policy"], exchange["retention.ms"]) == ("delete", "-1")
    assert {make_config(each)["message.timestamp.type"] for each in topics.values()} == {"CreateTime"}


def test_no_broker_deletes_state_by_its_clock() -> None:
    """A store goes by event time, a broker by the wall clock: windows of old events would be gone at once."""
    for name in ("app-windows-changelog", "app-windows-closing-changelog"):
        assert make_config(make_topics()[name])["cleanup.policy"] == "compact"
