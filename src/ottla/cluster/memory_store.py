"""A coordination store inside this process that keeps ZooKeeper's promises, for tests and simulations.

Brokers may share it from several event loops in several threads: the tree is behind a lock, and answers are handed to
the loop that asked. Time is that of the loops, so on a virtual clock sessions expire in virtual time. A session whose
loop stands still sends no heartbeat and expires, like that of a paused process.

Faults are ordered through `MemoryStore`: `cut` and `heal` the connection of a client, `stop` and `start` the whole
store, `lag` the reads of a client, `expire` its sessions; `fate` decides about single requests.
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.cluster.memory_tree import Effect, Tree, parent_of
from ottla.cluster.store import (
    ConnectionLost,
    Delete,
    Disconnected,
    NodeData,
    Operation,
    SessionExpired,
    SessionState,
    StoreError,
    StoreSession,
    StoreUnavailable,
    Watch,
)

T = TypeVar("T")

SESSION_TIMEOUT_S = 6.0
HEARTBEATS_PER_TIMEOUT = 3
RECONNECT_S = 0.01


class Fate(NamedTuple):
    """What happens to one request, by order of a test.

    `request_s` and `answer_s`: how long the request and its answer travel. `is_lost`: instead of the answer, the client
    learns after `answer_s` that its connection broke; the request is applied after `request_s` all the same, even if
    that is later, or never if `is_applied` is False.
    """

    request_s: float = 0.0
    answer_s: float = 0.0
    is_lost: bool = False
    is_applied: bool = True


@dataclass(slots=True)
class _View:
    """What a lagging client reads: a tree, and the effects that it has not applied."""

    tree: Tree
    backlog: deque[Effect] = field(default_factory=deque)


class MemoryStore:
    def __init__(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self.session_timeout_s = session_timeout_s
        self.fate: Callable[[str, str, Sequence[Operation]], Fate] | None = None
        """Asked for every request: the client's name, the name of the request (get, children, commit, sync, open) and
        its operations. None: every request is answered at once."""
        self.lock = threading.RLock()
        self.commits = 0
        self._tree = Tree()
        self._sessions: dict[int, MemorySession] = {}
        self._last_session_id = 0
        self._cut: set[str] = set()
        self._stopped = False
        self._views: dict[str, _View] = {}

    def client(self, name: str) -> "MemoryClient":
        """The store as one client sees it. Faults are ordered by the client's name."""
        return MemoryClient(self, name)

    # Faults, from any thread

    def cut(self, name: str) -> None:
        """Break the connection of a client until `heal`."""
        with self.lock:
            self._cut.add(name)
            self._break(name)

    def heal(self, name: str) -> None:
        with self.lock:
            self._cut.discard(name)

    def disconnect(self, name: str) -> None:
        """Break the connection of a client, which connects again at once."""
        with self.lock:
            self._break(name)

    def stop(self) -> None:
        """The store is away for everybody. Sessions do not age meanwhile, as nobody is there to expire them."""
        with self.lock:
            self._stopped = True
            for session in self._sessions.values():
                session.post(session.lose_connection)

    def start(self) -> None:
        """Bring the store back. As after an election of ZooKeeper, every session has its full time-out again."""
        with self.lock:
            self._stopped = False
            for session in self._sessions.values():
                session.heard_s = None

    def lag(self, name: str) -> None:
        """Let reads of a client stay at the present state until it commits or syncs, or until `catch_up`."""
        with self.lock:
            if name not in self._views:
                tree = Tree()
                tree.copy_from(self._tree)
                self._views[name] = _View(tree)

    def catch_up(self, name: str) -> None:
        with self.lock:
            view = self._views.pop(name, None)
            if view is not None:
                self._fire(name, view.backlog)

    def expire(self, name: str) -> None:
        """End the sessions of a client at once, as if their time-out were over."""
        with self.lock:
            for session in self._list_sessions(name):
                self._end(session)

    # The side of the clients

    def is_reachable(self, name: str) -> bool:
        return not self._stopped and name not in self._cut

    def register(self, session: "MemorySession", now_s: float) -> int:
        with self.lock:
            self._expire_idle(now_s)
            self._last_session_id += 1
            self._sessions[self._last_session_id] = session
            session.heard_s = now_s
            return self._last_session_id

    def hear(self, session: "MemorySession", now_s: float) -> bool:
        """Take a heartbeat. Returns whether the session lives."""
        with self.lock:
            self._expire_idle(now_s)
            if session.id not in self._sessions:
                return False
            session.heard_s = now_s
            return True

    def lives(self, session: "MemorySession", now_s: float) -> bool:
        """Whether the session lives. Unlike `hear`, this does not count as a heartbeat."""
        with self.lock:
            self._expire_idle(now_s)
            return session.id in self._sessions

    def end(self, session: "MemorySession") -> None:
        with self.lock:
            self._end(session)

    def get(self, session: "MemorySession", path: str, watch: Watch | None) -> NodeData:
        node = self._find_tree(session).get(path)
        if watch is not None:
            session.data_watches.setdefault(path, []).append(watch)
        return node

    def children(self, session: "MemorySession", path: str, watch: Watch | None) -> list[str]:
        names = self._find_tree(session).children(path)
        if watch is not None:
            session.child_watches.setdefault(path, []).append(watch)
        return names

    def commit(self, session: "MemorySession", operations: Sequence[Operation]) -> None:
        effects = self._tree.execute(operations, session.id)
        self.commits += 1
        self._publish(effects)
        self.catch_up(session.name)

    def sync(self, session: "MemorySession") -> None:
        self.catch_up(session.name)

    def _find_tree(self, session: "MemorySession") -> Tree:
        view = self._views.get(session.name)
        return self._tree if view is None else view.tree

    def _publish(self, effects: Sequence[Effect]) -> None:
        for name in sorted({session.name for session in self._sessions.values()} | self._views.keys()):
            view = self._views.get(name)
            if view is not None:
                view.backlog.extend(effects)
            else:
                self._fire(name, effects)

    def _fire(self, name: str, effects: Sequence[Effect] | deque[Effect]) -> None:
        for session in self._list_sessions(name):
            for effect in effects:
                deleted_or_created = effect.created or effect.data is None
                fired = session.data_watches.pop(effect.path, []) if not effect.created else []
                if deleted_or_created:
                    fired += session.child_watches.pop(parent_of(effect.path), [])
                if effect.data is None:
                    fired += session.child_watches.pop(effect.path, [])
                for watch in dict.fromkeys(fired):
                    session.answer(watch)

    def _expire_idle(self, now_s: float) -> None:
        if self._stopped:
            return
        for session in list(self._sessions.values()):
            if session.heard_s is None:
                session.heard_s = now_s
            elif now_s - session.heard_s > session.timeout_s:
                self._end(session)

    def _end(self, session: "MemorySession") -> None:
        if self._sessions.pop(session.id, None) is not None:
            owned = [Delete(path) for path in self._tree.owned_by(session.id)]
            self._publish(self._tree.execute(owned, session.id))

    def _list_sessions(self, name: str) -> list["MemorySession"]:
        return [session for session in self._sessions.values() if session.name == name]

    def _break(self, name: str) -> None:
        for session in self._list_sessions(name):
            session.post(session.lose_connection)


class MemoryClient:
    """A `Store`: the store in memory, reached under a name."""

    name = "the store in memory"

    def __init__(self, store: MemoryStore, name: str) -> None:
        self._store = store
        self._name = name

    async def open(self, on_state: Callable[[SessionState], None]) -> StoreSession:
        fate = self._store.fate
        if fate is not None:
            await asyncio.sleep(fate(self._name, "open", ()).request_s)
        if not self._store.is_reachable(self._name):
            raise StoreUnavailable(f"{self._name} cannot reach the store in memory")
        return MemorySession(self._store, self._name, on_state)


class MemorySession:
    """A `StoreSession`. `heard_s`, the watches and `post` belong to the store and are used under its lock."""

    def __init__(self, store: MemoryStore, name: str, on_state: Callable[[SessionState], None]) -> None:
        self.name = name
        self.timeout_s = store.session_timeout_s
        self.heard_s: float | None = None
        self.data_watches: dict[str, list[Watch]] = {}
        self.child_watches: dict[str, list[Watch]] = {}
        self._store = store
        self._on_state = on_state
        self._state = SessionState.CONNECTED
        self._connection = 0
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        """What runs on behalf of this session runs in the context of its owner, whoever caused it."""
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._requests: deque[Callable[[], None]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._requests_until_s = self._answers_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.id = store.register(self, self._loop.time())
        self._beat()

    @property
    def state(self) -> SessionState:
        return self._state

    async def get(self, path: str, watch: Watch | None = None) -> NodeData:
        return await self._request("get", (), lambda: self._store.get(self, path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._request("children", (), lambda: self._store.children(self, path, watch))

    async def commit(self, operations: Sequence[Operation]) -> None:
        await self._request("commit", operations, lambda: self._store.commit(self, operations))

    async def claim(self) -> None:
        """A store in memory has no paths, and belongs to its test."""

    async def sync(self) -> None:
        await self._request("sync", (), lambda: self._store.sync(self))

    async def close(self) -> None:
        if self._state is SessionState.CONNECTED and self._store.is_reachable(self.name):
            self._store.end(self)
        self._change(SessionState.CLOSED)

    def abandon(self) -> None:
        self._change(SessionState.CLOSED)

    def post(self, callback: Callable[[], None]) -> None:
        """Run a callback on the loop of this session, from whatever thread."""
        if self._is_on_loop():
            self._loop.call_soon(callback, context=self._context)
        else:
            with suppress(RuntimeError):  # the loop was closed: nobody is there to be told
                self._loop.call_soon_threadsafe(callback)

    def answer(self, deliver: Callable[[], None], delay_s: float = 0.0) -> None:
        """Hand an answer or the event of a watch to the client, after those that are already under way."""
        connection = self._connection
        self._answers.append(lambda: deliver() if connection == self._connection else None)
        if self._is_on_loop():
            self._answers_until_s = max(self._answers_until_s, self._loop.time() + delay_s)
            self._run_later(self._answers_until_s, self._answers)
        else:
            self.post(self._deliver_oldest)

    def _deliver_oldest(self) -> None:
        self._answers.popleft()()

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def lose_connection(self) -> None:
        """The client learns that its connection broke: everything it waits for has an unknown outcome."""
        if self._state is SessionState.CONNECTED:
            self._change(SessionState.SUSPENDED)
            self._loop.call_later(RECONNECT_S, self._reconnect, context=self._context)

    def _lose_connection_of(self, connection: int) -> None:
        if connection == self._connection:
            self.lose_connection()

    async def _request(self, name: str, operations: Sequence[Operation], serve: Callable[[], T]) -> T:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpired("the session is over")
        if self._state is SessionState.SUSPENDED or not self._store.is_reachable(self.name):
            raise Disconnected("there is no connection to the store")
        fate = Fate() if self._store.fate is None else self._store.fate(self.name, name, operations)
        future: asyncio.Future[T] = self._loop.create_future()
        self._pending[future] = None
        future.add_done_callback(lambda done: self._pending.pop(done, None))
        if fate.is_applied:
            self._requests.append(lambda: self._serve(serve, future, fate))
            self._requests_until_s = max(self._requests_until_s, self._loop.time() + fate.request_s)
            self._run_later(self._requests_until_s, self._requests)
        if fate.is_lost:
            self._loop.call_later(fate.answer_s, self._lose_connection_of, self._connection)
        return await future

    def _run_later(self, when_s: float, queue: deque[Callable[[], None]]) -> None:
        """Run the oldest of a queue at a time. Timers of the same time may fire in any order, a queue keeps it."""
        if when_s <= self._loop.time():
            self._loop.call_soon(lambda: queue.popleft()(), context=self._context)
        else:
            self._loop.call_at(when_s, lambda: queue.popleft()(), context=self._context)

    def _serve(self, serve: Callable[[], T], future: "asyncio.Future[T]", fate: Fate) -> None:
        with self._store.lock:
            if not self._store.hear(self, self._loop.time()):
                _fail(future, SessionExpired("the session is over"))
                self._change(SessionState.EXPIRED)
                return
            try:
                result = serve()
            except StoreError as error:
                deliver = partial(_fail, future, error)
            else:
                deliver = partial(_finish, future, result)
            if not fate.is_lost:
                self.answer(deliver, fate.answer_s)

    def is_owner_heard(self) -> bool:
        """Whether the owner of the session shows that it lives. An owner on this loop does by running."""
        return True

    def _beat(self) -> None:
        if self._state is SessionState.CONNECTED:
            hear = self._store.hear if self.is_owner_heard() else self._store.lives
            if not self._store.is_reachable(self.name):
                self.lose_connection()
            elif not hear(self, self._loop.time()):
                self._change(SessionState.EXPIRED)
        if self._state in (SessionState.CONNECTED, SessionState.SUSPENDED):
            self._timer = self._loop.call_later(self.timeout_s / HEARTBEATS_PER_TIMEOUT, self._beat)

    def _reconnect(self) -> None:
        if self._state is not SessionState.SUSPENDED:
            return
        if not self._store.is_reachable(self.name):
            self._loop.call_later(RECONNECT_S, self._reconnect)
        elif self._store.hear(self, self._loop.time()):
            self._change(SessionState.CONNECTED)
        else:
            self._change(SessionState.EXPIRED)

    def _change(self, state: SessionState) -> None:
        if self._state in (state, SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._state = state
        if state is SessionState.CONNECTED:
            self._on_state(state)
            return
        self._connection += 1
        # What is still under way on the old connection holds up nothing on the next one.
        self._requests, self._requests_until_s = deque(), 0.0
        if self._timer is not None and state is not SessionState.SUSPENDED:
            self._timer.cancel()
        for future in list(self._pending):
            _fail(future, ConnectionLost("the connection broke"))
        with self._store.lock:
            groups = [*self.data_watches.values(), *self.child_watches.values()]
            self.data_watches, self.child_watches = {}, {}
        lost = [watch for group in groups for watch in group]
        self._on_state(state)
        for watch in dict.fromkeys(lost):
            self._loop.call_soon(watch)


def _finish(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: StoreError) -> None:
    if not future.done():
        future.set_exception(error)
