"""Changes of SCRAM users in one request, by the rules of Kafka's controller."""

import hashlib
import hmac
from dataclasses import fields

import pytest

from ottla.cluster.credentials import Deletion, Upsertion, alter_users
from ottla.cluster.encoding import decode, encode
from ottla.cluster.image import Image
from ottla.errors import ErrorCode

SHA_256, SHA_512 = 1, 2
SECRET = bytes(32)


def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> Upsertion:
    return Upsertion(name, mechanism, iterations, b"salt", b"salted password")


def apply(image: Image, *changes: Upsertion | Deletion) -> tuple[Image, dict[str, ErrorCode]]:
    """The metadata after a request, and the users that it refused."""
    decision = alter_users(
        image,
        [each for each in changes if isinstance(each, Upsertion)],
        [each for each in changes if isinstance(each, Deletion)],
        SECRET,
    )
    after = image.replay(image.version + 1, decision.changes)
    return after, {name: error.code for name, error in decision.result.items()}


@pytest.mark.parametrize(
    "changes",
    [
        (upsert("alice", SHA_256), upsert("alice", SHA_512)),
        (upsert("alice", SHA_256), upsert("alice", SHA_256)),
        (Deletion("alice", SHA_256), upsert("alice", SHA_512)),
        (Deletion("alice", SHA_256), Deletion("alice", SHA_512)),
    ],
)
def test_a_request_names_a_user_once(changes: tuple[Upsertion | Deletion, ...]) -> None:
    # Also with two mechanisms, as in Kafka. Nothing of that user changes, and the others of the request do.
    before, _ = apply(Image(), upsert("alice", SHA_256))
    before, _ = apply(before, upsert("alice", SHA_512))
    after, problems = apply(before, *changes, upsert("bob"))
    assert problems == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert set(after.identities.scram) == {("alice", SHA_256), ("alice", SHA_512), ("bob", SHA_256)}
    assert after.identities.scram["alice", SHA_256] == before.identities.scram["alice", SHA_256]


def test_wrong_changes_are_refused_by_name() -> None:
    after, problems = apply(
        Image(),
        upsert(""),
        upsert("weak", iterations=4095),
        upsert("slow", iterations=16385),
        upsert("odd", mechanism=3),
        Deletion("absent", SHA_256),
        upsert("fine"),
    )
    assert problems == {
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "weak": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "slow": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "absent": ErrorCode.RESOURCE_NOT_FOUND,
    }
    assert set(after.identities.scram) == {("fine", SHA_256)}


def test_who_reads_the_metadata_cannot_log_in() -> None:
    # ZooKeeper shows it to whoever reaches it. The salted password and the client key would be as good as the password.
    salted = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    changes = alter_users(Image(), [Upsertion("alice", SHA_256, 4096, b"salt", salted)], [], SECRET).changes
    written = [getattr(change, field.name) for change in decode(encode(changes)) for field in fields(change)]
    assert hashlib.sha256(client_key).digest() in written
    assert not any(secret in written for secret in (salted, client_key, b"password", "password"))
