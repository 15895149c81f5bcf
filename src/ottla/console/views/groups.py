"""The list of groups, one group with its lag over time, resets and deletion."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ottla.client.client import LATEST
from ottla.console import copying
from ottla.console.calls import BadInput, Call, parse_number
from ottla.console.console import Console
from ottla.console.facts.groups import (
    GroupDetails,
    ListedGroup,
    Member,
    OffsetAndMetadata,
    delete_group,
    describe_group,
    find_lags,
    lag_of,
    read_offsets,
)
from ottla.console.facts.offsets import list_offsets
from ottla.console.facts.resetting import SHIFT, TARGETS, TO_OFFSET, TO_TIME, PlannedReset, execute_reset, plan_reset
from ottla.console.history import INTERVAL_S, to_columns
from ottla.console.rendering import quote_segment, write_number
from ottla.console.sampling import LAG, LAG_SECONDS, find_ages
from ottla.console.views.listing import make_listing
from ottla.console.views.record_rows import INT64_MAX, parse_time
from ottla.console.views.records import make_event
from ottla.errors import ErrorCode, KafkaError
from ottla.topic_partition import TopicPartition

AGES_MAX = 100


class GroupRow(NamedTuple):
    group: ListedGroup
    topics: list[str]
    lag: int
    seconds: float | None


class OffsetRow(NamedTuple):
    where: TopicPartition
    committed: OffsetAndMetadata | None
    end: int | None
    lag: int | None
    seconds: float | None
    member: Member | None


def show(call: Call) -> Response:
    console = call.console
    snapshot = console.metadata.get()
    groups = console.groups.get()
    index = console.index.get()
    listing = make_listing(
        call,
        list(groups.values()),
        lambda group: group.name,
        {
            "name": lambda group: group.name,
            "kind": lambda group: group.kind,
            "state": lambda group: group.state,
            "topics": lambda group: len({where.topic for where in index.offsets.get(group.name, {})}),
            "lag": lambda group: _latest(console, LAG, group.name) or 0.0,
        },
    )
    with console.clients.borrow() as client:
        offsets = read_offsets(client, listing.rows)
        lags = find_lags(client, snapshot, offsets)
    now_ms = console.now_ms()
    rows = []
    for group in listing.rows:
        console.history.want(LAG, group.name, now_ms)
        topics = sorted({where.topic for where in offsets.get(group.name, {})})
        lag = lags.get(group.name, 0)
        rows.append(GroupRow(group, topics, lag, _latest(console, LAG_SECONDS, group.name) if lag else 0.0))
    return call.page(
        "groups.html",
        listing=listing._replace(rows=rows),  # type: ignore[arg-type]
        copies=copying.copy_groups(console.options),
    )


def _latest(console: Console, kind: str, name: str) -> float | None:
    series = console.history.series(kind, name)
    return series[-1].value if series else None


def show_group(call: Call) -> Response:
    return _show_group(call, call.path("name"))


def _show_group(
    call: Call, name: str, plan: list[PlannedReset] | None = None, reset: dict[str, str] | None = None
) -> Response:
    console = call.console
    snapshot = console.metadata.get()
    group = _find(console.groups.get(2), name)
    console.history.want(LAG, name, console.now_ms())
    with console.clients.borrow() as client:
        committed = read_offsets(client, [group]).get(name, {})
        details = describe_group(client, snapshot, group)
        places = sorted({*committed, *(where for member in details.members for where in member.partitions)})
        ends = list_offsets(client, snapshot, places, LATEST)
        lags = {where: lag_of(each, ends.get(where)) for where, each in committed.items()}
        behind = {where: committed[where].offset for where, lag in lags.items() if lag}
        ages = find_ages(console, client, dict(sorted(behind.items())[:AGES_MAX]), ends, console.now_ms())
    owners = {where: member for member in details.members for where in member.partitions}
    rows = [
        OffsetRow(
            where,
            committed.get(where),
            ends.get(where),
            lags.get(where),
            ages.get(where, 0.0 if lags.get(where) == 0 else None),
            owners.get(where),
        )
        for where in places
        if where in ends or where in committed
    ]
    return call.page(
        "group.html",
        details=details,
        rows=rows,
        lag=sum(lag or 0 for lag in lags.values()),
        seconds=max(ages.values(), default=0.0),
        topics=sorted({where.topic for where in places if where.topic in snapshot.topics}),
        all_topics=_reset_topics(call),
        chart=_chart(console, name),
        samples=list(reversed(_table(console, name))),
        can_reset=_can_reset(details),
        copies=copying.copy_group(console.options, name),
        plan=plan,
        reset=reset or {},
    )


def _find(groups: Mapping[str, ListedGroup], name: str) -> ListedGroup:
    group = groups.get(name)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {name!r}")
    return group


def _can_reset(details: GroupDetails) -> bool:
    return not details.members


def _reset_topics(call: Call) -> list[str]:
    """Suggestions for a topic that the group has not read yet."""
    snapshot = call.console.metadata.get()
    names = [topic.name for topic in snapshot.topics.values() if not topic.is_internal]
    return names if len(names) <= 200 else []


def _chart(console: Console, name: str) -> list[list[float | None]]:
    return to_columns([console.history.series(LAG, name), console.history.series(LAG_SECONDS, name)])


def _table(console: Console, name: str) -> list[tuple[int, float, float | None]]:
    seconds = dict(console.history.series(LAG_SECONDS, name))
    return [(at, lag, seconds.get(at)) for at, lag in console.history.series(LAG, name)]


async def follow(request: Request) -> Response:
    """The lag of a group as it is sampled, as server-sent events for the chart."""
    console: Console = request.app.state.console
    name = str(request.path_params["name"])
    console.history.want(LAG, name, console.now_ms())
    return StreamingResponse(_send_lags(request, console, name), media_type="text/event-stream")


async def _send_lags(request: Request, console: Console, name: str) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    sent_ms = -1
    while not await request.is_disconnected():
        samples = console.history.series(LAG, name)
        if samples and samples[-1].time_ms > sent_ms:
            sent_ms = samples[-1].time_ms
            yield make_event("samples", _chart(console, name))
        else:
            yield ": nothing new\n\n"
        await asyncio.sleep(INTERVAL_S / 2)


def change(call: Call) -> Response:
    name = call.path("name")
    action = call.field("action")
    if action == "delete":
        if call.field("confirm").strip() != name:
            raise BadInput(f"type the group's name, {name}, to confirm")
        with call.console.clients.borrow() as client:
            delete_group(client, name)
        return call.redirect("/groups", f"Group {name} is deleted.")
    if action in ("plan", "reset"):
        return _reset(call, name, execute=action == "reset")
    raise BadInput(f"there is no action {action!r}")


def _reset(call: Call, name: str, *, execute: bool) -> Response:
    """The plan of a reset, or its execution. The plan is made anew for the execution, from the same form."""
    console = call.console
    console.groups.forget()
    snapshot = console.metadata.get()
    group = _find(console.groups.get(), name)
    with console.clients.borrow() as client:
        committed = read_offsets(client, [group]).get(name, {})
    target = call.field("target")
    if target not in TARGETS:
        raise BadInput(f"target: {target!r} is none of {', '.join(TARGETS)}")
    chosen = _choose_partitions(call, list(committed))
    plan = []
    with console.clients.borrow() as client:
        for number, places in _read_numbers(call, target, chosen).items():
            plan += plan_reset(client, snapshot, committed, places, target, number)
        if execute:
            execute_reset(client, group, plan)
    if execute:
        return call.redirect(f"/groups/{quote_segment(name)}", f"{write_number(len(plan))} offsets are reset.")
    return _show_group(call, name, plan=plan, reset={key: values[0] for key, values in call.form.items()})


def _choose_partitions(call: Call, committed: list[TopicPartition]) -> list[TopicPartition]:
    """Of the topic in the form, or all that the group has committed; limited to the partitions in the form."""
    topic = call.field("topic").strip()
    if topic:
        state = call.console.metadata.get().topic(topic)
        places = [TopicPartition(topic, part.number) for part in state.partitions]
    else:
        places = committed
    wanted = call.field("partitions").strip()
    if wanted:
        numbers = {parse_number(text, "partitions", 0, (1 << 31) - 1) for text in wanted.split(",")}
        places = [where for where in places if where.partition in numbers]
    if not places:
        raise BadInput("the reset concerns no partition: name a topic")
    return places


def _read_numbers(call: Call, target: str, places: list[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The number of the target for each partition: one field for all, or `offset-TOPIC-PARTITION` for one of them."""
    text = call.field("number").strip()
    if target == TO_TIME:
        return {parse_time(text, call.console.now_ms()): places}
    if target == SHIFT:
        return {parse_number(text, "shift by", -INT64_MAX, INT64_MAX): places}
    if target == TO_OFFSET:
        return {parse_number(text, "offset", 0, INT64_MAX): places}
    return {0: places}
