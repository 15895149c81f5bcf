"""The cluster: health, brokers, disks, and the settings of a broker."""

from starlette.responses import Response

from ottla.console import copying
from ottla.console.calls import BadInput, Call, NotFound, explain
from ottla.console.facts.settings import BROKER, change_settings, read_settings
from ottla.console.history import to_columns
from ottla.console.sampling import ENDS, TOTAL
from ottla.errors import KafkaError

TROUBLES_SHOWN = 100


def show(call: Call) -> Response:
    console = call.console
    snapshot = console.metadata.get()
    disks = console.disks.get()
    bytes_by_broker: dict[int, int] = {}
    for directory in disks.directories:
        bytes_by_broker[directory.broker] = bytes_by_broker.get(directory.broker, 0) + directory.log_bytes
    rates = console.history.rates(ENDS, TOTAL)
    return call.page(
        "cluster.html",
        snapshot=snapshot,
        disks=disks,
        group_count=len(console.groups.get()),
        bytes_by_broker=bytes_by_broker,
        total_bytes=sum(bytes_by_broker.values()),
        rate=console.history.rate(ENDS, TOTAL),
        chart=to_columns([rates]),
        rates=rates,
        troubles=[pair for pair, _ in zip(snapshot.troubled(), range(TROUBLES_SHOWN), strict=False)],
        copies=copying.copy_cluster(console.options),
    )


def show_broker(call: Call) -> Response:
    number = int(call.path("broker"))
    snapshot = call.console.metadata.get()
    broker = next((each for each in snapshot.brokers if each.node_id == number), None)
    if broker is None:
        raise NotFound(f"there is no broker {number}")
    try:
        with call.console.clients.borrow() as client:
            settings = read_settings(client, BROKER, str(number))
        refusal = ""
    except KafkaError as error:
        settings, refusal = [], explain(error)
    directories = [each for each in call.console.disks.get().directories if each.broker == number]
    return call.page(
        "broker.html",
        broker=broker,
        snapshot=snapshot,
        settings=settings,
        refusal=refusal,
        directories=directories,
        copies=copying.copy_broker(call.console.options, number),
    )


def change_broker(call: Call) -> Response:
    number = int(call.path("broker"))
    name, value = call.field("name"), call.field("value")
    if not name:
        raise BadInput("name the setting")
    remove = call.field("action") == "unset"
    with call.console.clients.borrow() as client:
        change_settings(client, BROKER, str(number), {name: None if remove else value})
    return call.redirect(f"/brokers/{number}", f"{name} {'has its default again' if remove else 'is changed'}.")
