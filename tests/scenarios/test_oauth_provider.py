"""Keys and tokens of an OAuth provider over https: other keys, a provider that is away, and what is not trusted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.client import Client
from ottla.client.connection import NotAuthenticated
from ottla.config import BrokerConfig, ConfigError
from ottla.security.bearer import BearerTokens
from ottla.security.failure import AuthenticationFailed
from ottla.security.jaas import OAUTH_MODULE
from ottla.testing import LocalBroker
from tests.clients.secured import Certificates, port_of, secured_broker
from tests.oauth_provider import AUDIENCE, ISSUER, OAuthProvider, run_provider

FAR = 5_000_000_000
"""An end in the far future: the tests move the broker's clock."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def provider(certificates: Certificates) -> Iterator[OAuthProvider]:
    with run_provider(certificates) as provider:
        yield provider


def settings_of(provider: OAuthProvider, trusted: Path | None) -> dict[str, str]:
    store = "" if trusted is None else f' ssl.truststore.type="PEM" ssl.truststore.location="{trusted}"'
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f'{OAUTH_MODULE} required unused="x"{store};',
        "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.allowed.urls": f"{provider.keys_url},{provider.token_url}",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "1",
    }


def enters(broker: LocalBroker, certificates: Certificates, token: str) -> bool:
    login = {
        "bootstrap.servers": f"127.0.0.1:{port_of(broker, 'SASL_SSL')}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": token,
        "ssl.ca.location": str(certificates.ca),
    }
    client = Client(login)
    try:
        client.list_brokers()
    except NotAuthenticated:
        return False
    finally:
        client.close()
    return True


def test_keys_are_fetched_over_https_and_change(certificates: Certificates, provider: OAuthProvider) -> None:
    with secured_broker(certificates, **settings_of(provider, certificates.ca)) as broker:
        assert provider.asked["/keys"] == 0  # a provider that is away does not keep a broker from starting
        first = provider.sign("alice")
        assert enters(broker, certificates, first)
        assert enters(broker, certificates, provider.sign("bob"))
        assert provider.asked["/keys"] == 1
        provider.rotate()
        broker.advance(seconds=11)  # an unknown key is asked for, though not all the time
        assert enters(broker, certificates, provider.sign("alice"))
        assert not enters(broker, certificates, first)  # the old key is not the provider's any more
        broker.advance(seconds=11)
        provider.is_away = True
        broker.advance(seconds=3600)
        late = provider.sign("alice", exp=FAR)
        assert enters(broker, certificates, late)  # by the last keys
        provider.rotate()
        broker.advance(seconds=11)
        assert not enters(broker, certificates, provider.sign("alice", exp=FAR))
        provider.is_away = False
        broker.advance(seconds=11)
        assert enters(broker, certificates, provider.sign("alice", exp=FAR))


def test_a_provider_that_is_not_trusted_gives_no_keys(
    certificates: Certificates, provider: OAuthProvider, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path, "another authority")
    for trusted in (None, foreign.ca):
        with secured_broker(certificates, **settings_of(provider, trusted)) as broker:
            assert not enters(broker, certificates, provider.sign("alice"))
    assert provider.asked["/keys"] == 0


def make_tokens(provider: OAuthProvider, certificates: Certificates, now_ms: list[int], **changes: str) -> BearerTokens:
    settings = {
        "sasl.oauthbearer.token.endpoint.url": provider.token_url,
        "sasl.oauthbearer.allowed.urls": provider.token_url,
        "sasl.oauthbearer.client.credentials.client.id": "broker",
        "sasl.oauthbearer.client.credentials.client.secret": "broker & secret",
        **changes,
    }
    options = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(certificates.ca)}
    return BearerTokens(BrokerConfig.of(settings), options, lambda: now_ms[0])


def test_a_broker_gets_tokens_of_an_endpoint(certificates: Certificates, provider: OAuthProvider) -> None:
    provider.clients["broker"] = "broker & secret"
    now_ms = [0]
    tokens = make_tokens(provider, certificates, now_ms)
    assert tokens.find() == tokens.find()
    assert provider.asked["/token"] == 1
    now_ms[0] += (provider.life_s - 29) * 1000  # it ends soon
    tokens.find()
    assert provider.asked["/token"] == 2
    provider.is_away = True
    tokens.find()  # the last one is good
    now_ms[0] += provider.life_s * 1000
    with pytest.raises(AuthenticationFailed, match="there is no token"):
        tokens.find()
    provider.is_away = False
    provider.clients["broker"] = "another"
    with pytest.raises(AuthenticationFailed, match="HTTP status 401") as refusal:
        tokens.find()
    assert "broker & secret" not in str(refusal.value)


def test_a_broker_reads_its_token_anew(certificates: Certificates, provider: OAuthProvider, tmp_path: Path) -> None:
    path = tmp_path / "token"
    url = f"file://{path}"
    given: dict[str, Any] = {"sasl.oauthbearer.token.endpoint.url": url, "sasl.oauthbearer.allowed.urls": url}
    tokens = make_tokens(provider, certificates, [0], **given)
    with pytest.raises(AuthenticationFailed):
        tokens.find()
    for text in ("first", "second"):
        path.write_text(f"{text}\n")
        assert tokens.find() == text
    path.write_text(json.dumps({"not": "a token"}))
    with pytest.raises(AuthenticationFailed):
        tokens.find()


@pytest.mark.parametrize(
    "changes",
    [
        {"sasl.oauthbearer.allowed.urls": "https://elsewhere.example"},
        {"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"},
        {"sasl.oauthbearer.client.credentials.client.secret": ""},
    ],
)
def test_what_a_broker_may_not_ask(
    certificates: Certificates, provider: OAuthProvider, changes: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer"):
        make_tokens(provider, certificates, [0], **changes)
