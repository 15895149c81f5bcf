"""Which settings of Kafka clients a connector may override: `connector.client.config.override.policy` of the worker.

The overrides are `producer.override.*`, `consumer.override.*` and `admin.override.*`. By default all are allowed.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ottla.connect.errors import BadConfig
from ottla.connect.settings.redaction import HIDDEN, SECRET_NAMES
from ottla.connect.settings.validation import Checked, CheckedSetting

POLICY: Final = "connector.client.config.override.policy"
ALLOWLIST: Final = "connector.client.config.override.allowlist"
PREFIXES: Final = ("producer.override.", "consumer.override.", "admin.override.")

_NEVER: Final = frozenset({"sasl.oauthbearer.token.endpoint.url", "https.ca.location", "ssl.crl.location"})
"""Whoever may create a connector could have the worker read any file or ask any address of its network with these."""
_PRINCIPAL: Final = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})

IsAllowed = Callable[[str], bool]


class OverridePolicy:
    def __init__(self, worker: Mapping[str, str]) -> None:
        """BadConfig if the worker names a policy that does not exist."""
        given = worker.get(POLICY, "All").strip()
        name = given.rpartition(".")[2].removesuffix("ConnectorClientConfigOverridePolicy")
        allowlist = frozenset(map(str.strip, worker.get(ALLOWLIST, "").split(",")))
        policies: dict[str, IsAllowed] = {
            "All": lambda name: True,
            "None": lambda name: False,
            "Principal": _PRINCIPAL.__contains__,
            "Allowlist": allowlist.__contains__,
        }
        if name not in policies:
            raise BadConfig(f"{POLICY}={given}: there is no such policy; there are {', '.join(policies)}")
        self._name = name
        self._is_allowed = policies[name]

    def check(self, config: Mapping[str, str | None]) -> Checked:
        """Every override of a configuration, with an error if it is not allowed."""
        checked: Checked = {}
        for full, text in config.items():
            prefix = next((prefix for prefix in PREFIXES if full.startswith(prefix)), None)
            if prefix is None or text is None:
                continue
            name = full.removeprefix(prefix)
            found = CheckedSetting(full, None, HIDDEN if SECRET_NAMES.search(name) else text)
            if name in _NEVER:
                found.errors.append(
                    f"'{name}' can be set in the worker's properties only, because it names files or URLs."
                )
            elif not self._is_allowed(name):
                found.errors.append(
                    f"The '{self._name}' policy does not allow '{name}' to be overridden in the connector"
                    " configuration."
                )
            checked[full] = found
        return checked
