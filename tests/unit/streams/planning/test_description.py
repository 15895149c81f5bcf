"""A plan as text."""

from ottla.streams.planning.description import describe
from ottla.streams.planning.planner import make_plan
from tests.unit.streams.planning.topologies import count, keep_if, rekey, select, sink, source


def test_a_plan_is_described_subtopology_by_subtopology() -> None:
    counts = count(rekey(keep_if(select(source("in"))), "value"), "counts")

    assert (
        describe(make_plan("app", [sink(counts, "out")]))
        == """\
app app

subtopology in-to-counts-repartition
  reads    in
  Spark    one Column step
  step     filter
  step     counts
  writes   app-counts-repartition by value

subtopology counts
  reads    app-counts-repartition
  step     counts (store counts)
  store    counts, kept in app-counts-changelog
  writes   out

topics of the app
  app-counts-repartition
  app-counts-changelog"""
    )
