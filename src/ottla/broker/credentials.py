"""The users and delegation tokens in the metadata, as authentication asks for them."""

from collections.abc import Callable

from ottla.cluster.image import Image
from ottla.security.sasl import TokenCredential
from ottla.security.scram import NUMBERS, ScramCredential, invent


class MetadataCredentials:
    """A `Credentials` of `security/sasl.py`."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image = image

    def find_user(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._image().identities.scram.get((name, NUMBERS[mechanism]))

    async def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return None

    def invent_user(self, mechanism: str, name: str) -> ScramCredential:
        image = self._image()
        secret = image.identities.decoy_secret or (image.cluster_id or "").encode()
        return invent(mechanism, name, secret, image.identities.usual_iterations)
