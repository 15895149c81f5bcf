"""Faults that a test injects: the broker fails, delays or drops its next answers to an API."""

from dataclasses import dataclass

from ottla.errors import ErrorCode


@dataclass(slots=True)
class Fault:
    error: ErrorCode | None = None
    delay_s: float = 0.0
    drop: bool = False
    answer_only: bool = False  # the request is handled, and only its answer is lost or wrong
    times: int | None = 1  # None: until it is cleared


class Faults:
    def __init__(self) -> None:
        self._by_api: dict[str, list[Fault]] = {}

    def add(self, api: str, fault: Fault) -> None:
        self._by_api.setdefault(api, []).append(fault)

    def clear(self) -> None:
        self._by_api.clear()

    def take(self, api: str) -> Fault | None:
        """The fault for the next request to `api`, if any. Faults apply in the order they were added, `times` times."""
        faults = self._by_api.get(api)
        if not faults:
            return None
        fault = faults[0]
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                faults.pop(0)
        return fault
