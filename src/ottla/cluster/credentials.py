"""Deciders for users of SCRAM, with Kafka's checks and error codes."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.cluster.changes import Change
from ottla.cluster.decision import Decision
from ottla.cluster.identities import MECHANISM_NAMES
from ottla.cluster.identity_changes import RemoveScramCredential, SetDecoySecret, SetScramCredential
from ottla.cluster.image import Image
from ottla.errors import ErrorCode, KafkaError
from ottla.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, from_salted_password

NAME_BYTES_MAX = 1024
SALT_BYTES_MAX = 1024
SALTED_PASSWORD_BYTES_MAX = 1024
DECOY_BYTES = 32


class Upsertion(NamedTuple):
    """A password of a user, salted by the client."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class Deletion(NamedTuple):
    name: str
    mechanism: int


Problems = dict[str, KafkaError]


def alter_users(
    image: Image, upsertions: Sequence[Upsertion], deletions: Sequence[Deletion], decoy_secret: bytes
) -> Decision[Problems]:
    """Change the credentials that are valid. The result has the error of each user whose change was refused.

    `decoy_secret` is random, and is stored with the first user.
    """
    problems = _find_problems(image, upsertions, deletions)
    changes: list[Change] = [
        RemoveScramCredential(each.name, each.mechanism) for each in deletions if each.name not in problems
    ]
    for each in upsertions:
        if each.name not in problems:
            mechanism = MECHANISM_NAMES[each.mechanism]
            credential = from_salted_password(mechanism, each.salted_password, each.salt, each.iterations)
            changes.append(SetScramCredential(each.name, each.mechanism, *credential))
    return Decision(_with_decoy_secret(image, changes, decoy_secret), problems)


def add_user(
    image: Image, name: str, mechanism: int, credential: ScramCredential, decoy_secret: bytes
) -> Decision[bool]:
    """Add a user, unless it exists: then it keeps its password. Returns whether the user was added."""
    if (name, mechanism) in image.identities.scram:
        return Decision([], False)
    changes: list[Change] = [SetScramCredential(name, mechanism, *credential)]
    return Decision(_with_decoy_secret(image, changes, decoy_secret), True)


def check_user(name: str, mechanism: int, iterations: int) -> KafkaError | None:
    """What is wrong with a credential; None if nothing is."""
    if not name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(name.encode()) > NAME_BYTES_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The username is longer than {NAME_BYTES_MAX} bytes")
    if mechanism not in MECHANISM_NAMES:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if iterations < ITERATIONS_MIN:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > ITERATIONS_MAX:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None


def _with_decoy_secret(image: Image, changes: list[Change], secret: bytes) -> list[Change]:
    if changes and not image.identities.decoy_secret:
        changes.insert(0, SetDecoySecret(secret))
    return changes


def _find_problems(image: Image, upsertions: Sequence[Upsertion], deletions: Sequence[Deletion]) -> Problems:
    problems: Problems = {}
    seen: dict[str, None] = {}
    wanted: list[Upsertion | Deletion] = [*deletions, *upsertions]
    for each in wanted:
        if each.name in problems:
            continue
        if each.name in seen:
            message = "A user credential cannot be altered twice in the same request"
            problems[each.name] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
            continue
        seen[each.name] = None
        problem = _find_problem(image, each)
        if problem is not None:
            problems[each.name] = problem
    return problems


def _find_problem(image: Image, each: Upsertion | Deletion) -> KafkaError | None:
    if isinstance(each, Upsertion):
        problem = check_user(each.name, each.mechanism, each.iterations)
        if problem is None and not 0 < len(each.salt) <= SALT_BYTES_MAX:
            message = f"The salt must have 1 to {SALT_BYTES_MAX} bytes"
            problem = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
        if problem is None and not 0 < len(each.salted_password) <= SALTED_PASSWORD_BYTES_MAX:
            message = f"The salted password must have 1 to {SALTED_PASSWORD_BYTES_MAX} bytes"
            problem = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
        return problem
    problem = check_user(each.name, each.mechanism, ITERATIONS_MIN)
    if problem is None and (each.name, each.mechanism) not in image.identities.scram:
        message = "Attempt to delete a user credential that does not exist"
        problem = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return problem
