"""Which quota counts for a client: the most specific one, in Kafka's order.

    user and client id      alice, app       1
    user, any client id     alice, default   2
    user                    alice            3
    any user, client id     default, app     4
    any user, any client id default, default 5
    any user                default          6
    client id               app              7
    any client id           default          8

A quota of a user is shared by all its connections and client ids. Every other one is for each client id by itself,
also if it is the default. An empty client id is one like any other; in Kafka it escapes every quota of client ids.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.cluster.changes import QuotaName
from ottla.cluster.quotas import CLIENT_ID, USER


class Default:
    """Stands for a name: every user or client id that has no quota of its own."""


DEFAULT: Final = Default()

Name = str | Default | None
"""A name, the default, or None if the quota does not ask for it."""


class Who(NamedTuple):
    """Whose consumption is counted together: a user, a client id, or a client id of a user."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    who: Who
    value: float


class QuotaTable:
    """The quotas of one kind."""

    def __init__(self, limits: Mapping[tuple[Name, Name], float]) -> None:
        self._limits = limits

    @classmethod
    def of(cls, quotas: Mapping[tuple[QuotaName, ...], Mapping[str, float]], key: str) -> "QuotaTable":
        limits: dict[tuple[Name, Name], float] = {}
        for entity, values in quotas.items():
            names: dict[str, Name] = {kind: DEFAULT if name is None else name for kind, name in entity}
            if key in values:
                limits[names.get(USER), names.get(CLIENT_ID)] = values[key]
        return cls(limits)

    def __len__(self) -> int:
        return len(self._limits)

    def find(self, user: str, client_id: str) -> Limit | None:
        """The limit for this client; None if there is none."""
        limits = self._limits
        if (value := limits.get((user, client_id), limits.get((user, DEFAULT)))) is not None:
            return Limit(Who(user, client_id), value)
        if (value := limits.get((user, None))) is not None:
            return Limit(Who(user, None), value)
        if (value := limits.get((DEFAULT, client_id), limits.get((DEFAULT, DEFAULT)))) is not None:
            return Limit(Who(user, client_id), value)
        if (value := limits.get((DEFAULT, None))) is not None:
            return Limit(Who(user, None), value)
        if (value := limits.get((None, client_id), limits.get((None, DEFAULT)))) is not None:
            return Limit(Who(None, client_id), value)
        return None


NO_QUOTAS = QuotaTable({})
