"""Apache Kafka's console clients and its tool for delegation tokens, over SASL_SSL at a broker with access control."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing
from benchmarks.peers.apache_kafka import ToolFailure, run_tool
from ottla.config.properties import format_properties
from ottla.testing.local import ADMIN
from tests.patience import PATIENCE_MS
from tests.scenarios.test_security_tools import ACLS, Tools

TOOLS = "org.apache.kafka.tools"
TOKENS = f"{TOOLS}.DelegationTokenCommand"
TOPICS = f"{TOOLS}.TopicCommand"


@pytest.fixture(scope="module")
def tools(kafka_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with ottla.testing.broker(security="sasl_ssl", acls=True, delegation_token_secret_key="of all brokers") as broker:
        yield Tools(broker, tmp_path_factory.mktemp("login"))


def test_console_clients_log_in(tools: Tools, tmp_path: Path) -> None:
    """kafka-console-producer and kafka-console-consumer do what their user may, and nothing else."""
    tools.broker.create_topic("console")
    tools.broker.create_user("carol")
    assert tools.broker.security is not None
    login = tmp_path / "carol.properties"
    login.write_text(format_properties(tools.broker.security.make_java_settings("carol")))
    at = ("--bootstrap-server", tools.broker.bootstrap, "--command-config", str(login), "--topic", "console")
    limits = ("--max-messages", "2", "--timeout-ms", str(PATIENCE_MS))
    reading = ("--from-beginning", *limits, "--group", "console-readers")
    user = ("--allow-principal", "User:carol", "--topic", "console")
    tools(ACLS, "--add", *user, "--producer")
    run_tool(f"{TOOLS}.ConsoleProducer", *at, stdin="one\ntwo\n")
    # It ends at once, and has read nothing.
    assert not {"one", "two"} & set(run_console_consumer(*at, *reading).split())
    tools(ACLS, "--add", *user, "--consumer", "--group", "console-readers")
    assert run_tool(f"{TOOLS}.consumer.ConsoleConsumer", *at, *reading).split() == ["one", "two"]


def run_console_consumer(*words: str) -> str:
    """What the consumer prints, also if it fails."""
    try:
        return run_tool(f"{TOOLS}.consumer.ConsoleConsumer", *words)
    except ToolFailure as failure:
        return str(failure)


def test_delegation_tokens_are_made_and_used(tools: Tools, tmp_path: Path) -> None:
    """kafka-delegation-tokens makes a token, lists and renews it; the Java client enters with it until it ends."""
    tools.broker.create_topic("delegated")
    made = tools(TOKENS, "--create", "--max-life-time-period", "-1", "--renewer-principal", f"User:{ADMIN}")
    token_id, secret = re.findall(r"^(\S+)\s+(\S+)\s+User:", made, re.MULTILINE)[0]
    assert token_id in tools(TOKENS, "--describe", "--owner-principal", f"User:{ADMIN}")
    tools(TOKENS, "--renew", "--renew-time-period", "-1", "--hmac", secret)
    settings = dict(tools.broker.java_settings)
    module = settings["sasl.jaas.config"].split()[0]
    settings["sasl.jaas.config"] = f'{module} required username="{token_id}" password="{secret}" tokenauth="true";'
    login = tmp_path / "token.properties"
    login.write_text(format_properties(settings))
    listing = (TOPICS, "--list", "--bootstrap-server", tools.broker.bootstrap, "--command-config", str(login))
    assert "delegated" in run_tool(*listing).split()
    tools(TOKENS, "--expire", "--expiry-time-period", "-1", "--hmac", secret)
    with pytest.raises(ToolFailure, match="Authentication failed"):
        run_tool(*listing)
