"""Names of users with certificates: Java's distinguished names, and Kafka's rules."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.config import ConfigError
from ottla.security.names import NoMatchingRule, read_rules, write_distinguished_name

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=x,O=y", "CN=x,O=y"),
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=JohnDoe,x=1", "johndoe"),
        (RULES, "O=other", "O=other"),
        ("RULE:^CN=(.*?),.*$/$1/U", "CN=abc,O=y", "ABC"),
        ("RULE:^CN=([^,]*).*$/$1@$2/", "CN=abc", "abc@$2"),
        ("RULE:^CN=([^,]*).*$/$12/", "CN=abc", "abc2"),
        ("RULE:^CN=(?<who>[^,]*).*$/${who}/", "CN=abc", "abc"),
        ("RULE:^CN=(.*)$/a\\/b-$1/", "CN=abc", "a/b-abc"),
        (" RULE:nothing/x/ , DEFAULT ", "CN=abc", "CN=abc"),
    ],
)
def test_rules_are_kafkas(rules: str, name: str, user: str) -> None:
    assert read_rules(rules)(name) == user


def test_a_rule_matches_the_whole_name() -> None:
    # Or CN=admin inside of another name would be enough.
    with pytest.raises(NoMatchingRule):
        read_rules("RULE:CN=admin/admin/")("CN=mallory,OU=CN=admin")


@pytest.mark.parametrize("rules", ["NONSENSE", "RULE:a/b", "RULE:(/x/", "DEFAULT,nonsense"])
def test_wrong_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: "):
        read_rules(rules)


def test_distinguished_names_are_written_as_java_does() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'Exa+mple, "Inc"'),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b"),
            x509.NameAttribute(NameOID.COMMON_NAME, "#älice "),
        ]
    )
    email = "1.2.840.113549.1.9.1=#1603614062"
    assert write_distinguished_name(name) == f'CN=\\#älice\\ ,{email},O=Exa\\+mple\\, \\"Inc\\",C=DE'
