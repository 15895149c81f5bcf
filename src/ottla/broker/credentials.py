"""The users and delegation tokens in the metadata, as authentication asks for them."""

from base64 import b64encode
from collections.abc import Callable

from ottla.cluster.image import Image
from ottla.config import BrokerConfig
from ottla.security.principal import Principal
from ottla.security.sasl import TokenCredential
from ottla.security.scram import ITERATIONS_MIN, NUMBERS, ScramCredential, derive, invent
from ottla.security.tokens import derive_secret
from ottla.system.threads import Offload

DERIVED_MAX = 1000
"""Credentials of tokens that are kept: to derive one takes milliseconds."""


class MetadataCredentials:
    """A `Credentials` of `security/sasl.py`."""

    def __init__(
        self, image: Callable[[], Image], config: BrokerConfig, now_ms: Callable[[], int], offload: Offload
    ) -> None:
        self._image = image
        self._secret_key = config.delegation_token_secret_key
        self._now_ms = now_ms
        self._offload = offload
        self._derived: dict[tuple[str, str], ScramCredential] = {}

    def find_user(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._image().identities.scram.get((name, NUMBERS[mechanism]))

    async def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        token = self._image().identities.tokens.get(token_id)
        if token is None or self._secret_key is None or token.has_expired(self._now_ms()):
            return None
        credential = self._derived.get((mechanism, token_id))
        if credential is None:
            password = b64encode(derive_secret(self._secret_key, token_id))
            salt = self.invent_user(mechanism, token_id).salt  # the same that a wrong id would get
            credential = await self._offload(derive, mechanism, password, salt, self._usual_iterations)
            if len(self._derived) >= DERIVED_MAX:
                self._derived.pop(next(iter(self._derived)))
            self._derived[mechanism, token_id] = credential
        expires_at_ms = min(token.expires_at_ms, token.max_at_ms)
        return TokenCredential(credential, Principal(*token.owner), expires_at_ms)

    @property
    def _usual_iterations(self) -> int:
        return self._image().identities.usual_iterations or ITERATIONS_MIN

    def invent_user(self, mechanism: str, name: str) -> ScramCredential:
        image = self._image()
        secret = image.identities.decoy_secret or (image.cluster_id or "").encode()
        return invent(mechanism, name, secret, image.identities.usual_iterations)
