"""The listeners of a broker that have TLS or SASL: their entrances, their certificates, and changes of their settings.

A broker without such a listener does not import this module.
"""

from random import Random

from ottla.broker.credentials import MetadataCredentials
from ottla.cluster.metadata import Metadata
from ottla.config import BrokerConfig
from ottla.security.listener import ListenerSecurity, build_security
from ottla.server import Server
from ottla.server.entrance import Entrance
from ottla.system.clock import Clock
from ottla.system.threads import Offload


class SecuredListeners:
    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._securities: list[ListenerSecurity] = []

    async def secure(
        self, server: Server, config: BrokerConfig, metadata: Metadata, clock: Clock, random: Random
    ) -> None:
        """Give every listener with TLS or SASL its entrance, before it is opened."""
        credentials = MetadataCredentials(lambda: metadata.image, config, clock.now_ms, self._offload)
        for listener in config.endpoints.bound:
            security = await self._offload(
                build_security, listener, config, credentials, random, clock.now_ms, self._offload
            )
            if security is not None:
                self._securities.append(security)
                server.secure(listener.name, Entrance(security))

    async def check(self, config: BrokerConfig) -> None:
        """See `Node.check_listeners`."""
        for security in self._securities:
            await self._offload(security.check, config)

    async def reload(self) -> None:
        """Load certificates whose files have changed."""
        for security in self._securities:
            await self._offload(security.reload)

    def follow(self, config: BrokerConfig) -> None:
        """The broker's settings were changed."""
        for security in self._securities:
            security.follow(config)
