"""Creates users without a client library: a certificate for TLS, or a password of SCRAM."""

import os
from collections.abc import Mapping
from contextlib import closing
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion

if TYPE_CHECKING:
    from ottla.testing.security import TestSecurity

ITERATIONS = 4096
_HASHES = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}


def create_user(client_settings: Mapping[str, str], security: "TestSecurity", name: str, password: str | None) -> None:
    """`client_settings` are those of an administrator. KafkaError if the broker refuses the user."""
    from ottla.client.client import Client

    security.add_user(name, password)
    if not security.has_sasl:
        return  # a certificate of the test's authority is enough
    if security.mechanism == "PLAIN":
        raise ValueError("users of PLAIN are in the broker's settings; use a mechanism of SCRAM")
    number, algorithm = _HASHES[security.mechanism]
    salt = os.urandom(24)
    salted = pbkdf2_hmac(algorithm, security.find_password(name).encode(), salt, ITERATIONS)
    upsertion = ScramCredentialUpsertion(
        name=name, mechanism=number, iterations=ITERATIONS, salt=salt, salted_password=salted
    )
    with closing(Client(client_settings)) as client:
        (result,) = client.ask_any(AlterUserScramCredentialsRequest(upsertions=[upsertion])).results
    if result.error_code:
        raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
