"""Quotas in the metadata: what may be set for whom, what a filter finds, and that a snapshot keeps them."""

import math

import pytest

from ottla.cluster.image import EMPTY, Image
from ottla.cluster.quotas import Entity, Match, QuotaAlteration, alter_quotas, find_quotas, make_entity
from ottla.errors import ErrorCode

ALICE = make_entity([("user", "alice")])
ALICE_APP = make_entity([("client-id", "app"), ("user", "alice")])
ANYBODY = make_entity([("user", None)])
ADDRESS = make_entity([("ip", "10.0.0.1")])


def alter(image: Image, entity: Entity, **values: float | None) -> tuple[Image, int]:
    decision = alter_quotas(image, [QuotaAlteration(entity, values)])
    (error,) = decision.result
    return image.replay(image.version + 1, decision.changes), 0 if error is None else error.code


def filled() -> Image:
    image = EMPTY
    for entity in (ALICE, ALICE_APP, ANYBODY):
        image, code = alter(image, entity, producer_byte_rate=1024.0, request_percentage=12.5)
        assert code == 0
    image, code = alter(image, ADDRESS, connection_creation_rate=10.0)
    assert code == 0
    return image


def test_a_snapshot_and_a_digest_have_the_quotas() -> None:
    image = filled()
    again = EMPTY.replay(image.version, image.snapshot())
    assert again.quotas == image.quotas
    assert again.digest() == image.digest() != EMPTY.digest()


def test_what_does_not_change_anything_is_not_written() -> None:
    image = filled()
    assert alter_quotas(image, [QuotaAlteration(ALICE, {"producer_byte_rate": 1024.0, "unknown": None})]).changes == []


def test_removed_quotas_leave_nothing() -> None:
    image = filled()
    for entity in (ALICE, ALICE_APP, ANYBODY):
        image, _ = alter(image, entity, producer_byte_rate=None, request_percentage=None)
    image, _ = alter(image, ADDRESS, connection_creation_rate=None)
    assert image.digest() == EMPTY.digest()


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ((), "producer_byte_rate", 1.0),
        (make_entity([("user", "")]), "producer_byte_rate", 1.0),
        (make_entity([("group", "g")]), "producer_byte_rate", 1.0),
        (make_entity([("user", "x" * 40_000)]), "producer_byte_rate", 1.0),
        (make_entity([("user", "a"), ("ip", "10.0.0.1")]), "connection_creation_rate", 1.0),
        (make_entity([("ip", "build-host")]), "connection_creation_rate", 1.0),
        (ADDRESS, "producer_byte_rate", 1.0),
        (ADDRESS, "connection_creation_rate", 2.0**31),
        (ALICE, "connection_creation_rate", 1.0),
        (ALICE, "bytes", 1.0),
        (ALICE, "producer_byte_rate", 0.0),
        (ALICE, "producer_byte_rate", -5.0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "producer_byte_rate", 2.0**64),
        (ALICE, "request_percentage", math.nan),
        (ALICE, "request_percentage", math.inf),
    ],
)
def test_what_no_quota_can_be_is_refused(entity: Entity, key: str, value: float) -> None:
    image, code = alter(EMPTY, entity, **{key: value})
    assert (code, len(image.quotas)) == (ErrorCode.INVALID_REQUEST, 0)


def test_a_filter_finds_by_types_and_names() -> None:
    # Not strict: who has the type, and perhaps others. Strict: who has these types only.
    image = filled()

    def found(*matches: Match, strict: bool = False) -> list[Entity]:
        return [entity for entity, _ in find_quotas(image, matches, strict)]

    alice, default = Match("user", lambda name: name == "alice"), Match("user", lambda name: name is None)
    assert found() == [ALICE_APP, ADDRESS, ANYBODY, ALICE]
    assert found(strict=True) == []
    assert found(alice) == [ALICE_APP, ALICE]
    assert found(alice, strict=True) == [ALICE]
    assert found(default) == [ANYBODY]
    assert found(alice, Match("client-id", lambda name: True), strict=True) == [ALICE_APP]
