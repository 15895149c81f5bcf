"""The stores of an app, wherever their partitions are: a question goes to the state server that has the partition."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from ottla.streams.planning.plan import StorePlan
from ottla.streams.state.client import StateClient
from ottla.streams.state.views import StoreView


class RemoteStores:
    """Views of stores for any number of threads. A connection is used by one of them at a time."""

    def __init__(self, locate: Callable[[str, int], str], token: str, *, wait_s: float = 5.0) -> None:
        """`locate` gives the address of the state server that has a partition of a store."""
        self._locate = locate
        self._token = token
        self._wait_s = wait_s
        self._idle: dict[str, list[StateClient]] = {}
        self._lock = Lock()

    def view(self, plan: StorePlan, partition_count: int) -> StoreView:
        return StoreView(plan, partition_count, lambda partition: _PooledReader(self, plan.spec.name, partition))

    def views(self, plans: Mapping[str, StorePlan], partition_counts: Mapping[str, int]) -> dict[str, StoreView]:
        """Those stores that may be queried. `partition_counts` are those of the changelogs."""
        return {
            name: self.view(plan, partition_counts[plan.changelog]) for name, plan in plans.items() if plan.is_queryable
        }

    def close(self) -> None:
        with self._lock:
            for clients in self._idle.values():
                for client in clients:
                    client.close()
            self._idle.clear()

    @contextmanager
    def borrow(self, store: str, partition: int) -> Iterator[StateClient]:
        """A client of the server that has the partition."""
        address = self._locate(store, partition)
        with self._lock:
            idle = self._idle.setdefault(address, [])
            client = idle.pop() if idle else StateClient(address, self._token, wait_s=self._wait_s)
        try:
            yield client
        finally:
            with self._lock:
                self._idle.setdefault(address, []).append(client)


class _PooledReader:
    """A StateReader of one partition as it stands."""

    def __init__(self, stores: RemoteStores, store: str, partition: int) -> None:
        self._stores = stores
        self._where = store, partition

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._stores.borrow(*self._where) as client:
            return client.reader(*self._where, None).get_many(keys)

    def range(
        self, start: bytes, end: bytes | None, *, is_reversed: bool = False, limit: int | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        with self._stores.borrow(*self._where) as client:
            yield from client.reader(*self._where, None).range(start, end, is_reversed=is_reversed, limit=limit)
