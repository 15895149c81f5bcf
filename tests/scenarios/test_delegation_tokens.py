"""Delegation tokens: made by users, used with SCRAM, and never by others or by themselves."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.security import scram
from ottla.security.operations import Operation, ResourceType
from ottla.testing import LocalBroker
from ottla.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.clients.secured import ALICE, BROKER, BROKER_PASSWORD, Certificates, secured_broker
from tests.raw_client import RawClient
from tests.scenarios.access import STANDARD_AUTHORIZER, add, rule
from tests.scenarios.test_authentication import begin, connect, log_in, send_token

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker(certificates: Certificates) -> Iterator[LocalBroker]:
    with secured_broker(certificates, **{"delegation.token.secret.key": "secret of all brokers"}) as broker:
        yield broker


def create(client: RawClient, *renewers: str, life_ms: int = -1, owner: str | None = None) -> Any:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=name) for name in renewers],
        max_lifetime_ms=life_ms,
    )
    return client.request(request, 3)


def enter(client: RawClient, token_id: str, secret: bytes, *, as_token: bool = True) -> int:
    """Authenticate with a token, as Kafka's clients do: its secret in base64 is the password."""
    assert begin(client, "SCRAM-SHA-256") == ErrorCode.NONE
    password = b64encode(secret).decode()
    conversation = scram.ClientConversation("SCRAM-SHA-256", token_id, password, b"nonce", token=as_token)
    first = send_token(client, conversation.client_first)
    last = send_token(client, conversation.answer(bytes(first.auth_bytes)))
    if last.error_code == ErrorCode.NONE:
        conversation.check(bytes(last.auth_bytes))
        assert 0 < last.session_lifetime_ms <= DAY_MS
    return int(last.error_code)


def test_a_token_acts_for_its_owner(broker: LocalBroker) -> None:
    with connect(broker) as client:
        log_in(client)
        made = create(client)
        assert (made.error_code, made.principal_name) == (ErrorCode.NONE, ALICE)
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
        assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
        listed = client.request(DescribeDelegationTokenRequest(owners=None), 3).tokens
        assert [(each.token_id, bytes(each.hmac)) for each in listed] == [(made.token_id, bytes(made.hmac))]
    broker.restart()
    with connect(broker) as client:
        assert enter(client, made.token_id, bytes(made.hmac)) == ErrorCode.NONE
        assert client.request(MetadataRequest(topics=None), 12).brokers
        # A token makes, renews and shows no tokens.
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1)
        assert client.request(renewal, 2).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        listing = client.request(DescribeDelegationTokenRequest(owners=None), 3)
        assert (listing.error_code, listing.tokens) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
    for name, secret, as_token in (
        (made.token_id, b"x" * 64, True),
        ("another id", bytes(made.hmac), True),
        (made.token_id, bytes(made.hmac), False),
        (ALICE, bytes(made.hmac), True),
    ):
        with connect(broker) as client:
            assert enter(client, name, secret, as_token=as_token) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_is_its_owners_and_its_renewers(broker: LocalBroker) -> None:
    with connect(broker) as alice, connect(broker) as other, connect(broker, "PLAINTEXT") as nobody:
        log_in(alice)
        log_in(other, BROKER, BROKER_PASSWORD)
        assert create(nobody).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert create(alice, owner=BROKER).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        own, shared = create(alice), create(alice, BROKER)
        mine = other.request(DescribeDelegationTokenRequest(owners=None), 3).tokens
        assert [each.token_id for each in mine] == [shared.token_id]

        def renew(client: RawClient, secret: bytes) -> int:
            request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=HOUR_MS)
            return int(client.request(request, 2).error_code)

        assert renew(other, own.hmac) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert renew(other, shared.hmac) == ErrorCode.NONE
        assert renew(alice, own.hmac) == ErrorCode.NONE
        assert renew(alice, b"no such token") == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        ending = ExpireDelegationTokenRequest(hmac=own.hmac, expiry_time_period_ms=-1)
        assert other.request(ending, 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        ended = alice.request(ending, 2)
        assert ended.error_code == ErrorCode.NONE
        assert own.issue_timestamp_ms <= ended.expiry_timestamp_ms < own.expiry_timestamp_ms
        assert alice.request(ending, 2).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with connect(broker) as client:
        assert enter(client, own.token_id, bytes(own.hmac)) == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_acls_allow_tokens_of_others(certificates: Certificates) -> None:
    # CREATE_TOKENS on a user makes tokens of that user, DESCRIBE_TOKENS shows them, and so does DESCRIBE on one token.
    settings = {
        "delegation.token.secret.key": "secret of all brokers",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{BROKER}",
    }
    with secured_broker(certificates, **settings) as broker, connect(broker) as alice, connect(broker) as admin:
        log_in(alice)
        log_in(admin, BROKER, BROKER_PASSWORD)
        refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert create(alice, owner="carol").error_code == refused
        add(admin, rule(ALICE, Operation.CREATE_TOKENS, ResourceType.USER, "User:carol"))
        assert create(alice, owner="dave").error_code == refused
        made = create(alice, owner="carol")
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "carol", ALICE)

        def list_owners(*owners: str) -> list[str]:
            asked = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
            tokens = alice.request(DescribeDelegationTokenRequest(owners=asked or None), 3).tokens
            return sorted(each.principal_name for each in tokens)

        erin, frank = create(admin, owner="erin"), create(admin, owner="frank")
        assert list_owners() == ["carol"]  # who has asked for a token may see it
        add(admin, rule(ALICE, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:erin"))
        assert list_owners() == ["carol", "erin"]
        add(admin, rule(ALICE, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, frank.token_id))
        assert list_owners() == ["carol", "erin", "frank"]
        assert list_owners("erin", "nobody") == ["erin"]
        with connect(broker) as client:
            assert enter(client, erin.token_id, bytes(erin.hmac)) == ErrorCode.NONE


def test_a_token_expires(broker: LocalBroker) -> None:
    with connect(broker) as client:
        log_in(client)
        made = create(client, life_ms=HOUR_MS)
        assert made.max_timestamp_ms - made.issue_timestamp_ms == HOUR_MS
    with connect(broker) as client:
        assert enter(client, made.token_id, bytes(made.hmac)) == ErrorCode.NONE
        broker.advance(hours=1, seconds=1)
        client.send_request(MetadataRequest(topics=None), 12)
        with pytest.raises(ConnectionError):  # its session ends with the token
            client.read_frame()
    with connect(broker) as client:
        assert enter(client, made.token_id, bytes(made.hmac)) == ErrorCode.SASL_AUTHENTICATION_FAILED
    broker.advance(hours=1)
    with connect(broker) as client:
        log_in(client)
        assert client.request(DescribeDelegationTokenRequest(owners=None), 3).tokens == []


def test_without_a_secret_there_are_no_tokens(certificates: Certificates) -> None:
    with secured_broker(certificates) as broker, connect(broker) as client:
        log_in(client)
        assert create(client).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
