"""The tree of nodes of the store in memory: operations with ZooKeeper's checks, applied together or not at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ottla.cluster.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeData,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    StoreError,
)

ROOT = "/"


@dataclass(slots=True)
class _Node:
    data: bytes
    version: int = 0
    owner: int = 0
    children: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """A change that a commit made to one node. `data` None: the node was deleted."""

    path: str
    data: bytes | None
    owner: int = 0
    created: bool = False


class Tree:
    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {ROOT: _Node(b"")}

    def copy_from(self, other: "Tree") -> None:
        self._nodes = {
            path: _Node(node.data, node.version, node.owner, dict(node.children)) for path, node in other._nodes.items()
        }

    def get(self, path: str) -> NodeData:
        node = self._require(path)
        return NodeData(node.data, node.version, node.owner)

    def children(self, path: str) -> list[str]:
        return sorted(self._require(path).children)

    def owned_by(self, session_id: int) -> list[str]:
        """The ephemeral nodes of a session."""
        return sorted(path for path, node in self._nodes.items() if node.owner == session_id)

    def execute(self, operations: Sequence[Operation], session_id: int) -> list[Effect]:
        """Apply all operations and return their effects, or raise the first error and change nothing."""
        done: list[tuple[str, _Node | None]] = []
        effects: list[Effect] = []
        try:
            for operation in operations:
                self._check(operation)
                if (effect := _find_effect(operation, session_id)) is not None:
                    before = self._nodes.get(effect.path)
                    kept = None if before is None else _Node(before.data, before.version, before.owner, before.children)
                    done.append((effect.path, kept))
                    self._apply(effect)
                    effects.append(effect)
        except StoreError:
            for path, before in reversed(done):
                self._restore(path, before)
            raise
        return effects

    def apply(self, effects: Iterable[Effect]) -> None:
        """Apply effects of commits that another tree executed, in the same order."""
        for effect in effects:
            self._apply(effect)

    def _check(self, operation: Operation) -> None:
        path = operation.path
        if isinstance(operation, Create):
            if path in self._nodes:
                raise NodeExists(f"{path} exists", path)
            parent = self._nodes.get(parent_of(path))
            if parent is None:
                raise NoNode(f"{parent_of(path)} does not exist", path)
            if parent.owner:
                raise StoreError(f"{parent_of(path)} is ephemeral, so it cannot have children", path)
            return
        node = self._require(path)
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion(f"{path} has version {node.version}, not {operation.version}", path)
        if isinstance(operation, Delete) and node.children:
            raise NotEmpty(f"{path} has children", path)

    def _require(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(f"{path} does not exist", path)
        return node

    def _apply(self, effect: Effect) -> None:
        path = effect.path
        if effect.data is None:
            del self._nodes[path]
            del self._nodes[parent_of(path)].children[name_of(path)]
        elif effect.created:
            self._nodes[path] = _Node(effect.data, owner=effect.owner)
            self._nodes[parent_of(path)].children[name_of(path)] = None
        else:
            node = self._nodes[path]
            node.data = effect.data
            node.version += 1

    def _restore(self, path: str, before: _Node | None) -> None:
        siblings = self._nodes[parent_of(path)].children
        if before is None:
            del self._nodes[path]
            del siblings[name_of(path)]
        else:
            self._nodes[path] = before
            siblings[name_of(path)] = None


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _find_effect(operation: Operation, session_id: int) -> Effect | None:
    match operation:
        case Create(path, data, ephemeral):
            return Effect(path, data, session_id if ephemeral else 0, created=True)
        case Delete(path):
            return Effect(path, None)
        case SetData(path, data):
            return Effect(path, data)
        case Check():
            return None
