"""Users who log in with SCRAM: new passwords and their removal. A broker gets salted hashes, never a password."""

from collections.abc import Iterable
from hashlib import pbkdf2_hmac
from typing import Final

from ottla.client.client import Client, error_code
from ottla.errors import KafkaError
from ottla.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""Name -> Kafka's number, and the name of the hash."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_SALT_BYTES: Final = 24


def set_password(client: Client, user: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
    """Create the user, or change the password. Raises KafkaError if the broker refuses."""
    for mechanism in mechanisms:
        number, algorithm = MECHANISMS[mechanism]
        salt = client.random.randbytes(_SALT_BYTES)
        salted = pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        _change(client, AlterUserScramCredentialsRequest(upsertions=[upsertion]))  # a request names each user once


def delete_mechanism(client: Client, user: str, mechanism: str) -> None:
    """Delete the credential with which a user logs in by one mechanism. Raises KafkaError if the broker refuses."""
    deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
    _change(client, AlterUserScramCredentialsRequest(deletions=[deletion]))


def _change(client: Client, request: AlterUserScramCredentialsRequest) -> None:
    for result in client.ask_any(request).results:
        if result.error_code:
            code = error_code(result.error_code)
            raise KafkaError(code, f"user {result.user!r}: {result.error_message or code.name}")
