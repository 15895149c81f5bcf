"""The deadlines of many members. Renewing a deadline costs a dictionary entry; only the nearest one is kept exact."""

from heapq import heappop, heappush


class Sessions:
    """The deadline of each member, after which it counts as dead.

    Renewing a deadline leaves the old entry in the heap. When that entry comes up, it is put back with the new
    deadline. So a member that sends a hundred heartbeats per session moves once in the heap. `next` may be too early,
    never too late.
    """

    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}
        """The valid entry of each member: the earliest in the heap. Others are ignored."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def renew(self, member_id: str, deadline: int) -> None:
        self._deadlines[member_id] = deadline
        queued = self._queued.get(member_id)
        if queued is None or deadline < queued:
            self._queued[member_id] = deadline
            heappush(self._heap, (deadline, member_id))

    def end(self, member_id: str) -> None:
        self._deadlines.pop(member_id, None)

    def deadline(self, member_id: str) -> int | None:
        return self._deadlines.get(member_id)

    @property
    def next(self) -> int | None:
        """When to call `take_expired`: at the nearest deadline or before it."""
        while self._heap and self._is_void(self._heap[0]):
            self._drop()
        return self._heap[0][0] if self._heap else None

    def take_expired(self, now: int) -> list[str]:
        """Remove and return the members whose deadline has come, the earliest first."""
        found = []
        while (next_at := self.next) is not None and next_at <= now:
            _, member_id = self._heap[0]
            self._drop()
            deadline = self._deadlines[member_id]
            if deadline <= now:
                del self._deadlines[member_id]
                found.append(member_id)
            else:
                self._queued[member_id] = deadline
                heappush(self._heap, (deadline, member_id))
        return found

    def _is_void(self, entry: tuple[int, str]) -> bool:
        deadline, member_id = entry
        return member_id not in self._deadlines or self._queued.get(member_id) != deadline

    def _drop(self) -> None:
        deadline, member_id = heappop(self._heap)
        if self._queued.get(member_id) == deadline:
            del self._queued[member_id]
