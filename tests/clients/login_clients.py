"""Five clients that go through the cases of `login_cases.py`: each comes in, or says why not with its own error."""

import asyncio
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaException, Producer

from benchmarks import PROJECT
from benchmarks.peers.apache_kafka import SHORT_LIVED_JVM, find_executable, find_jars
from ottla.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.clients import franz
from tests.clients.login_cases import IN, Case, World
from tests.clients.secured import quote
from tests.patience import PATIENCE_MS, PATIENCE_S

JAVA_SOURCE = Path(__file__).parent / "java" / "Logins.java"
AT_ONCE = 4
"""Cases that the Python clients go through at the same time: some of them wait before they give up."""


def _try_all(attempt: Callable[[World, Case], str], world: World, cases: list[Case]) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda case: attempt(world, case), cases))


# librdkafka


def run_librdkafka(world: World, cases: list[Case]) -> list[str]:
    return _try_all(_try_librdkafka, world, cases)


def _try_librdkafka(world: World, case: Case) -> str:
    errors: list[str] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": world.find_address(case),
        "security.protocol": case.protocol.lower(),
        "ssl.ca.location": case.ca,
        "error_cb": lambda error: errors.append(f"{error.name()}: {error.str()}"),
        "log_level": 0,
    }
    if case.certificate:
        settings |= {"ssl.certificate.location": case.certificate, "ssl.key.location": case.certificate}
    if case.mechanism:
        settings["sasl.mechanism"] = case.mechanism
    if case.password:
        settings |= {"sasl.username": case.user, "sasl.password": case.password}
    if case.token:
        settings["oauth_cb"] = lambda _: (case.token, time.time() + 3600)
    if case.secret:
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": world.provider.token_url,
            "sasl.oauthbearer.client.id": case.user,
            "sasl.oauthbearer.client.secret": case.secret,
            "https.ca.location": str(world.directory / "ca.pem"),
        }
    done: list[Any] = []
    try:
        producer = Producer(settings)
        producer.produce("orders", b"value", on_delivery=lambda error, message: done.append(error))
        deadline = time.monotonic() + PATIENCE_S
        while not done and not errors:
            assert time.monotonic() < deadline, f"{case.name}: librdkafka says nothing"
            producer.poll(0.1)
        producer.purge()
    except KafkaException as error:
        return str(error)
    return IN if done == [None] else errors[0]


# aiokafka and kafka-python


def _name_for_python(world: World, case: Case) -> dict[str, Any]:
    """The settings that both clients have."""
    found: dict[str, Any] = {
        "bootstrap_servers": world.find_address(case),
        "security_protocol": case.protocol,
    }
    if case.mechanism:
        found["sasl_mechanism"] = case.mechanism
    if case.password:
        found |= {"sasl_plain_username": case.user, "sasl_plain_password": case.password}
    return found


class _AioToken(AioTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class _Told(logging.Handler):
    """What a client has logged: aiokafka raises one error for everything, and logs why."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run_aiokafka(world: World, cases: list[Case]) -> list[str]:
    told = _Told()

    async def attempt(case: Case) -> str:
        told.lines.clear()
        own = case.certificate or None
        settings = _name_for_python(world, case)
        settings["ssl_context"] = create_ssl_context(cafile=case.ca, certfile=own, keyfile=own)
        if case.token:
            settings["sasl_oauth_token_provider"] = _AioToken(case.token)
        producer = AIOKafkaProducer(**settings)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await producer.start()
                await producer.send_and_wait("orders", b"value")
            return IN
        except AioKafkaError as error:
            return f"{type(error).__name__}: {error}: {told.lines}"
        finally:
            await producer.stop()

    async def attempt_all() -> list[str]:
        return [await attempt(case) for case in cases]

    logger = logging.getLogger("aiokafka")
    logger.addHandler(told)
    try:
        return asyncio.run(attempt_all())
    finally:
        logger.removeHandler(told)


def run_kafka_python(world: World, cases: list[Case]) -> list[str]:
    logins: list[dict[str, Any]] = []
    for case in cases:
        settings = _name_for_python(world, case) | {"ssl_cafile": case.ca}
        if case.certificate:
            settings |= {"ssl_certfile": case.certificate, "ssl_keyfile": case.certificate}
        login = {"settings": settings, "is_good": not case.refusal}
        logins.append(login | ({"token": case.token} if case.token else {}))
    command = [sys.executable, "-W", "ignore", "-m", "tests.clients.kafka_python_logins"]
    done = subprocess.run(
        command, input=json.dumps(logins), capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=PROJECT
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


# The Java client and franz-go, each in one process


def describe_for_java(world: World, case: Case) -> dict[str, str]:
    found = {
        "bootstrap.servers": world.find_address(case),
        "security.protocol": case.protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": case.ca,
        "default.api.timeout.ms": str(PATIENCE_MS),
    }
    if case.certificate:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": case.certificate}
    if case.mechanism:
        found["sasl.mechanism"] = case.mechanism
    if case.password:
        module = PLAIN_MODULE if case.mechanism == "PLAIN" else SCRAM_MODULE
        delegated = ' tokenauth="true"' if case.is_delegation_token else ""
        login = f'username="{quote(case.user)}" password="{quote(case.password)}"'
        found["sasl.jaas.config"] = f"{module} required {login}{delegated};"
    if case.mechanism == "OAUTHBEARER":
        package = OAUTH_MODULE.rpartition(".")[0]
        found["sasl.login.callback.handler.class"] = f"{package}.OAuthBearerLoginCallbackHandler"
        found["sasl.jaas.config"] = f"{OAUTH_MODULE} required;"
    if case.token:
        path = world.write(f"token-{abs(hash(case.name))}", case.token)
        found["sasl.oauthbearer.token.endpoint.url"] = f"file://{path}"
    if case.secret:
        trusted = f'ssl.truststore.type="PEM" ssl.truststore.location="{case.ca}"'
        found |= {
            "sasl.jaas.config": f"{OAUTH_MODULE} required {trusted};",
            "sasl.oauthbearer.token.endpoint.url": world.provider.token_url,
            "sasl.oauthbearer.client.credentials.client.id": case.user,
            "sasl.oauthbearer.client.credentials.client.secret": case.secret,
        }
    return found


def run_java(world: World, cases: list[Case]) -> list[str]:
    settings = [describe_for_java(world, case) for case in cases]
    url = "sasl.oauthbearer.token.endpoint.url"
    urls = [each[url] for each in settings if url in each]
    files = []
    for number, each in enumerate(settings):
        text = "".join(f"{name}={_escape(value)}\n" for name, value in each.items())
        files.append(str(world.write(f"java-{number}.properties", text)))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(dict.fromkeys(urls))}"
    command = [find_executable("java"), *SHORT_LIVED_JVM, allowed, "-cp", f"{find_jars()}/*", str(JAVA_SOURCE), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _escape(value: str) -> str:
    return re.sub(r"([\\=:#!])", r"\\\1", value)


def run_franz(world: World, cases: list[Case]) -> list[str]:
    logins = [
        {
            "Address": world.find_address(case),
            "Mechanism": case.mechanism,
            "User": case.user,
            "Password": case.password,
            "IsDelegationToken": case.is_delegation_token,
            "Token": case.token,
            "Authority": case.ca,
            "Certificate": case.certificate,
        }
        for case in cases
    ]
    found: list[str] = franz.run("logins", Logins=logins)
    return found


class LoginClient:
    """A client: how it goes through cases, what it cannot do, and how its errors name what it complains of."""

    def __init__(
        self,
        run: Callable[[World, list[Case]], list[str]],
        complaints: Mapping[str, str],
        *,
        delegation_tokens: bool = False,
        token_endpoint: bool = False,
    ) -> None:
        self.run = run
        self.complaints = complaints
        self._delegation_tokens = delegation_tokens
        self._token_endpoint = token_endpoint

    def can(self, case: Case) -> bool:
        if case.secret and not self._token_endpoint:
            return False
        return self._delegation_tokens or not case.is_delegation_token


CLIENTS: Mapping[str, LoginClient] = {
    "librdkafka": LoginClient(
        run_librdkafka, {"login": "^_AUTHENTICATION", "certificate": "certificate|unknown ca"}, token_endpoint=True
    ),
    "aiokafka": LoginClient(
        run_aiokafka,
        # A refused token is not told: aiokafka ignores the answer, and sees the connection end.
        {"login": "^KafkaConnectionError.*(credentials|password| closed)", "certificate": "^KafkaConnectionError"},
    ),
    "kafka-python": LoginClient(
        run_kafka_python, {"login": "Unable to bootstrap", "certificate": "Unable to bootstrap"}
    ),
    "franz-go": LoginClient(
        run_franz,
        {"login": "SASL_AUTHENTICATION_FAILED|unexpected data in oauth response", "certificate": "x509: |tls: "},
        delegation_tokens=True,
    ),
    "Java": LoginClient(
        run_java,
        {"login": "^SaslAuthenticationException|LoginException", "certificate": "^SslAuthenticationException"},
        delegation_tokens=True,
        token_endpoint=True,
    ),
}
"""The Python clients have one error for all reasons."""
