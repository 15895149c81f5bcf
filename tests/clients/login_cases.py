"""How clients come in, and why they do not: one table, which every client of `login_clients.py` goes through.

Each case names a listener of one broker, a mechanism and credentials. A client answers `IN`, or the text of its own
error.
"""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from ottla.client.client import Client
from ottla.security.jaas import OAUTH_MODULE
from ottla.testing import LocalBroker
from ottla.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from tests.clients.secured import ALICE, MECHANISMS, Certificates, password_of, port_of, secured_broker, settings_of
from tests.oauth_provider import AUDIENCE, ISSUER, OAuthProvider, run_provider

IN = "in"
PROTOCOLS = {"SASL_SSL": "SASL_SSL", "SSL": "SSL", "MUTUAL": "SSL", "EXPIRED": "SSL", "ELSEWHERE": "SSL"}
"""Listener -> its protocol."""
ENDPOINT_SECRET = "secret at the provider"


class Case(NamedTuple):
    name: str
    refusal: str = ""
    """What the client complains of: "login" or "certificate"; empty: it comes in."""
    listener: str = "SASL_SSL"
    mechanism: str = ""
    user: str = ALICE
    password: str = ""
    is_delegation_token: bool = False
    token: str = ""
    """The token of OAUTHBEARER, if the client does not get one itself."""
    secret: str = ""
    """Of the user at the token endpoint: the client gets a token itself."""
    ca: str = ""
    certificate: str = ""
    """File with the client's key and certificate."""

    @property
    def protocol(self) -> str:
        return PROTOCOLS[self.listener]


class World(NamedTuple):
    """The broker, the provider, and the cases with everything that they need in files."""

    broker: LocalBroker
    provider: OAuthProvider
    directory: Path
    cases: tuple[Case, ...]

    def find_address(self, case: Case) -> str:
        return f"127.0.0.1:{port_of(self.broker, case.listener)}"

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path


@contextmanager
def run_world(directory: Path) -> Iterator[World]:
    certificates = Certificates(directory)
    with run_provider(certificates) as provider:
        provider.clients[ALICE] = ENDPOINT_SECRET
        with secured_broker(certificates, **_settings_of(certificates, provider)) as broker:
            cases = (*_make_logins(certificates, provider, broker), *_make_certificate_cases(certificates))
            yield World(broker, provider, directory, cases)


def _settings_of(certificates: Certificates, provider: OAuthProvider) -> dict[str, str]:
    month_ago = certificates.now - timedelta(days=30)
    expired = certificates.write("old.pem", certificates.issue("b", hosts=["127.0.0.1"], now=month_ago, days=2).pem)
    elsewhere = certificates.broker("elsewhere", hosts=("elsewhere.example",))
    trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{certificates.ca}"'
    return settings_of(certificates) | {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener.name.expired.ssl.keystore.location": str(expired),
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere),
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTH_MODULE} required {trusted};",
        "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
        "sasl.oauthbearer.allowed.urls": provider.keys_url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": "secret of all brokers",
    }


def _make_logins(certificates: Certificates, provider: OAuthProvider, broker: LocalBroker) -> Iterator[Case]:
    ca = str(certificates.ca)
    for mechanism in MECHANISMS:
        good = Case(mechanism, mechanism=mechanism, password=password_of(mechanism), ca=ca)
        yield good
        yield good._replace(name=f"{mechanism}, wrong password", refusal="login", password="wrong")
        yield good._replace(name=f"{mechanism}, unknown user", refusal="login", user="nobody")
    token = Case("a token", mechanism="OAUTHBEARER", token=provider.sign(ALICE), ca=ca)
    yield token
    other = OAuthProvider()
    yield token._replace(name="a token of another provider", refusal="login", token=other.sign(ALICE))
    yield token._replace(name="a token for others", refusal="login", token=provider.sign(ALICE, aud="web"))
    yield token._replace(name="an expired token", refusal="login", token=provider.sign(ALICE, exp=1_600_000_000))
    asked = token._replace(name="a token that the client gets", token="", secret=ENDPOINT_SECRET)
    yield asked
    yield asked._replace(name="a token that the client does not get", refusal="login", secret="wrong")
    token_id, password = create_delegation_token(broker, certificates)
    for mechanism in MECHANISMS[1:]:
        delegated = Case(
            f"a delegation token with {mechanism}",
            mechanism=mechanism,
            user=token_id,
            password=password,
            is_delegation_token=True,
            ca=ca,
        )
        yield delegated
        wrong = b64encode(b"wrong" * 13)[:-1].decode() + "="
        yield delegated._replace(name=f"{delegated.name}, wrong", refusal="login", password=wrong)
        yield delegated._replace(name=f"{delegated.name} as a user", refusal="login", is_delegation_token=False)


def _make_certificate_cases(certificates: Certificates) -> Iterator[Case]:
    ca = str(certificates.ca)
    foreign_directory = certificates.directory / "foreign"
    foreign_directory.mkdir()
    foreign = Certificates(foreign_directory, "another authority")
    month_ago = certificates.now - timedelta(days=30)
    clients = {
        name: str(certificates.write(f"{name}.pem", issued.pem))
        for name, issued in {
            "own": certificates.issue("Alice", is_server=False),
            "foreign": foreign.issue("Alice", is_server=False),
            "expired": certificates.issue("Alice", is_server=False, now=month_ago, days=2),
        }.items()
    }
    tls = Case("TLS", listener="SSL", ca=ca)
    yield tls
    refused = tls._replace(refusal="certificate")
    yield refused._replace(name="a broker of an unknown authority", ca=str(foreign.ca))
    yield refused._replace(name="a broker with an expired certificate", listener="EXPIRED")
    yield refused._replace(name="a broker with another name", listener="ELSEWHERE")
    mutual = tls._replace(name="a certificate", listener="MUTUAL", certificate=clients["own"])
    yield mutual
    for name, path in (("no", ""), ("a foreign", clients["foreign"]), ("an expired", clients["expired"])):
        yield mutual._replace(name=f"{name} certificate", refusal="certificate", certificate=path)
    password = password_of("PLAIN")
    sasl = Case("PLAIN, unknown authority", "certificate", mechanism="PLAIN", password=password, ca=str(foreign.ca))
    yield sasl


def create_delegation_token(broker: LocalBroker, certificates: Certificates) -> tuple[str, str]:
    """The id and the password of a token of the user, as Kafka's clients use it."""
    login = {
        "bootstrap.servers": f"127.0.0.1:{port_of(broker, 'SASL_SSL')}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.ca),
        "sasl.mechanism": "PLAIN",
        "sasl.username": ALICE,
        "sasl.password": password_of("PLAIN"),
    }
    with closing(Client(login)) as client:
        made = client.ask_any(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert made.error_code == 0, made
    return made.token_id, b64encode(made.hmac).decode()
