"""A plan as text for people: which subtopology reads what, computes what, keeps what and writes where."""

from collections.abc import Iterator

from ottla.streams.planning.plan import PARCELS, AppPlan, SinkPlan, SubtopologyPlan


def describe(plan: AppPlan) -> str:
    """Several lines, one block for each subtopology in the order in which rows pass them."""
    lines = [f"app {plan.app}"]
    for each in plan.subtopologies:
        lines += ["", *_describe_subtopology(each)]
    internal = [topic.name for topic in plan.internal_topics]
    if internal:
        lines += ["", "topics of the app", *(f"  {name}" for name in internal)]
    return "\n".join(lines)


def _describe_subtopology(plan: SubtopologyPlan) -> Iterator[str]:
    yield f"subtopology {plan.name}"
    for source in plan.sources:
        table = " as a table" if source.is_table and source.holds != PARCELS else ""
        yield f"  reads    {source.topic}{table}"
    if plan.column_steps:
        steps = "one Column step" if len(plan.column_steps) == 1 else f"{len(plan.column_steps)} Column steps"
        yield f"  Spark    {steps}"
    for step in plan.steps:
        stores = ", ".join(spec.name for spec in step.kernel.stores)
        yield f"  step     {step.label}" + (f" (store {stores})" if stores else "")
    for store in plan.stores:
        yield f"  store    {store.spec.name}, kept in {store.changelog}"
    for sink in plan.sinks:
        yield f"  writes   {_describe_sink(sink)}"


def _describe_sink(sink: SinkPlan) -> str:
    if sink.topic is None:
        return f"the topic that column {sink.topic_column} names"
    if sink.holds == PARCELS and sink.partition_by is not None:
        return f"{sink.topic} by {', '.join(sink.partition_by)}"
    return sink.topic
