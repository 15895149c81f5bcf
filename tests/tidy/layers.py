"""Who may import whom: the layers of the house, and the few doors between them that are open on purpose."""

from collections.abc import Iterable, Iterator

from ottla.wire.frames import is_api
from tests.tidy.source import Finding, Module, imports, within

# From the roof to the ground. A row is a layer: it uses only rows below it. Rooms in one bracket may use each other;
# brackets in one row may not.
LAYERS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("cli", "testing", "log", "__main__"),),
    (("console",), ("connect",)),
    (("streams", "spark", "pyspark_ottla", "reading"),),
    (("pipeline",),),
    (("client",),),
    (("broker", "observability"),),
    (("broker.dispatch", "broker.handler_table", "broker.throttling"),),
    (("server",), ("handlers",)),
    (("broker.node", "broker.call", "broker.addresses"),),
    (("coordinators",),),
    (("replication",), ("quotas",), ("telemetry",)),
    (("cluster",),),
    (("storage",), ("security",), ("wire",)),
    (("records",),),
    (
        ("config", "observability.logs"),
        ("errors", "broker.faults"),
        ("observability.metrics",),
        ("system",),
        ("topic_partition",),
    ),
)

# Clients of a broker: of its inside they know only these, however low the rest of it lies.
CLIENTS = ("console", "connect", "streams", "spark", "pyspark_ottla", "reading", "pipeline", "client")
CLIENTS_MAY_USE = ("config", "errors", "records", "topic_partition", "wire", *CLIENTS)

# (importer, imported) -> why this door is open.
DOORS: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        (("ottla.wire.fetch.messages", "ottla.storage.files"), ("ottla.wire.fetch.responses", "ottla.storage.files")),
        "a fetch answer carries FileSlice, so records go from file to socket",
    ),
}

# Handlers do not know each other. What two of them share is a module beside them that is not named like an API.
HANDLERS = "ottla.handlers"

_RANKS = {
    room: (height, bracket) for height, row in enumerate(LAYERS) for bracket, rooms in enumerate(row) for room in rooms
}


def room_of(name: str) -> str | None:
    """`ottla.storage.log` is in `storage`; the bare package, which holds only the version, is in no room."""
    parts = name.split(".")
    if parts[0] == "pyspark_ottla":
        return "pyspark_ottla"
    if parts[0] != "ottla" or len(parts) == 1:
        return None
    inner = ".".join(parts[1:3])  # some modules of a room lie in a lower layer than the rest of it
    return inner if inner in _RANKS else parts[1]


def homeless(modules: Iterable[Module]) -> Iterator[Finding]:
    """Modules that no layer names."""
    for module in modules:
        room = room_of(module.name)
        if room is not None and room not in _RANKS:
            yield Finding(module.name, 1, f"room {room!r} stands in no layer of tests/tidy/layers.py")


def layer_findings(module: Module) -> Iterator[Finding]:
    """Imports that go up, or across to a neighbour."""
    room = room_of(module.name)
    if room not in _RANKS:
        return
    for line, target in imports(module):
        other = room_of(target)
        if other == room or other not in _RANKS or _has_door(module.name, target):
            continue
        if room in CLIENTS and other not in CLIENTS_MAY_USE:
            yield Finding(module.name, line, f"a client imports {target}, which is the broker's inside")
        elif _RANKS[other][0] < _RANKS[room][0]:
            yield Finding(module.name, line, f"imports {target}, which lies above it")
        elif _RANKS[other][0] == _RANKS[room][0] and _RANKS[other][1] != _RANKS[room][1]:
            yield Finding(module.name, line, f"imports its neighbour {target}")


def handler_findings(module: Module) -> Iterator[Finding]:
    """Handlers that import handlers."""
    if not within(module.name, HANDLERS) or module.name == HANDLERS:
        return
    for line, target in imports(module):
        if within(target, HANDLERS) and not within(target, module.name) and is_api(target.split(".")[2]):
            yield Finding(module.name, line, f"a handler imports the handler {target}")


def _has_door(importer: str, target: str) -> bool:
    return any(within(importer, source) and within(target, imported) for source, imported in DOORS)
