"""What a cluster needs of its coordination store: the promises of ZooKeeper, as an interface.

The store is a tree of nodes with data. `commit` applies several operations together or not at all, in one order for
all clients. A client has a session; its ephemeral nodes disappear when the session ends. Reads of a session never go
back in time and see its own commits, but may lag behind others until `sync`. zookeeper.py implements this interface
with ZooKeeper, memory_store.py inside a process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
"""Operations with this version apply to a node whatever its version is."""

Watch = Callable[[], None]
"""Called once on the event loop, when the watched node or its list of children changes, or when the watch is lost
because the connection or the session ended. It is called before the session can read the change."""


class StoreError(Exception):
    """An operation of the store failed. `path` is the node it failed at, empty if it is about none."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class NoNode(StoreError):
    """The node does not exist."""


class NodeExists(StoreError):
    """A node of that name exists already."""


class BadVersion(StoreError):
    """The node has another version than the operation expects."""


class NotEmpty(StoreError):
    """The node has children, so it cannot be deleted."""


class NotAllowed(StoreError):
    """The node belongs to somebody else. The message is one line for the person who starts the broker."""


class NoConnection(StoreError):
    """The store could not be asked, or its answer is missing. A connection is made again without the caller's help."""


class Disconnected(NoConnection):
    """The session has no connection at present, so the operation was not sent."""


class ConnectionLost(NoConnection):
    """The connection broke before the answer came. The operation may have been applied, or may still be."""


class SessionExpired(NoConnection):
    """The session is over. The operation was not applied, and the session's ephemeral nodes are gone or will be."""


class StoreUnavailable(StoreError):
    """No session could be opened. The message is one line for the person who starts the broker."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. An ephemeral node disappears with the session that creates it, and has no children."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node. Its version grows by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Require that a node exists, at this version if one is given."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Delete | SetData | Check


class NodeData(NamedTuple):
    """The data of a node, its version, and the id of the session that owns it (0: the node is not ephemeral)."""

    data: bytes
    version: int
    owner: int = 0


class SessionState(Enum):
    """SUSPENDED: without a connection; the session may live or have expired, only the store knows."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    CLOSED = "closed"


class StoreSession(Protocol):
    """A session. All methods and callbacks belong to the event loop that opened it.

    Operations are applied in the order in which they were called, also if the caller does not wait in between. Each of
    them raises Disconnected, ConnectionLost or SessionExpired besides the errors that it names.
    """

    @property
    def id(self) -> int:
        """Unique among all sessions of the store."""

    @property
    def timeout_s(self) -> float:
        """How long the store keeps the session without hearing from its client, as agreed with the store."""

    @property
    def state(self) -> SessionState: ...

    async def get(self, path: str, watch: Watch | None = None) -> NodeData:
        """The data of a node. NoNode, and no watch is left, if it does not exist."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children of a node, sorted. NoNode, and no watch is left, if the node does not exist."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all operations, or none: then the error is that of the first operation that failed."""

    async def claim(self) -> None:
        """Make the store this client's own: there is the path that all nodes are below, and nobody else may use them if
        the store is to be protected. NotAllowed if a node belongs to somebody else already. `Store.open` does not do
        this, so that a store can be looked at first: it may be another cluster's."""

    async def sync(self) -> None:
        """Later reads see everything that was committed by anybody before this call."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes disappear at once if the store can be reached."""

    def abandon(self) -> None:
        """Drop the connection as a killed process would. The store keeps the session until its time-out."""


class Store(Protocol):
    """A store that can be reached, or not."""

    @property
    def name(self) -> str:
        """What messages call it, such as `ZooKeeper at zk1:2181/path`."""

    async def open(self, on_state: Callable[[SessionState], None]) -> StoreSession:
        """Open a new session. `on_state` is told of every later change of its state. StoreUnavailable on failure."""
