"""The table of broker settings about identity: TLS, SASL, OAuth and delegation tokens. Defaults are those of Kafka.

Most of them can be set for one listener, as `listener.name.<listener>.<setting>`, and those of SASL for one mechanism
of it, as `listener.name.<listener>.<mechanism>.<setting>`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.config.settings import (
    BOOLEAN,
    CLASS,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    Check,
    Setting,
    Settings,
    UpdateMode,
    at_least,
    between,
    each_of,
    one_of,
    one_of_any_case,
)

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("PEM", "PKCS12", "JKS")
OAUTH_VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
PER_BROKER = UpdateMode.PER_BROKER

LISTENER_PREFIX = "listener.name."


def _no_class(reason: str) -> Check:
    return lambda value: f"{value} is not used: {reason}" if value else None


class ListenerKey(NamedTuple):
    """`listener.name.<listener>[.<mechanism>].<setting>` in parts. A mechanism that is not named is empty."""

    listener: str
    mechanism: str
    setting: str


# fmt: off
# A table, as in broker_table.py.
class SecuritySettings(Settings):
    # TLS
    ssl_protocol = Setting(
        STRING, "TLSv1.3", one_of("TLS", *TLS_VERSIONS),
        doc="Name of the TLS implementation in Java. ssl.enabled.protocols decides which versions are spoken.",
    )
    ssl_enabled_protocols = Setting(
        LIST, TLS_VERSIONS, each_of(*TLS_VERSIONS),
        doc="Versions of TLS. Older ones than TLSv1.2 are not supported.",
    )
    ssl_cipher_suites = Setting(
        LIST, (),
        doc="Cipher suites, by Java's or OpenSSL's names. Empty: those that OpenSSL considers safe.",
    )
    ssl_client_auth = Setting(
        STRING, "none", one_of_any_case("none", "requested", "required"),
        doc="Whether clients show a certificate. On a SASL_SSL listener only the listener's own setting counts.",
    )
    ssl_endpoint_identification_algorithm = Setting(
        STRING, "https", one_of_any_case("https", ""),
        doc="Whether a broker checks that the certificate of another one has its host name. Empty: it does not.",
    )
    ssl_keystore_type = Setting(
        STRING, "JKS", one_of_any_case(*(name.lower() for name in STORE_TYPES)), mode=PER_BROKER,
        doc="PEM or PKCS12. Stores in the format JKS cannot be read.",
    )
    ssl_keystore_location = Setting(
        STRING, None, mode=PER_BROKER,
        doc="File with the broker's key and certificates. It is read again when it changes.",
    )
    ssl_keystore_password = Setting(PASSWORD, None, mode=PER_BROKER, doc="Password of a PKCS12 key store.")
    ssl_keystore_key = Setting(PASSWORD, None, mode=PER_BROKER, doc="The broker's key, PEM, instead of a file.")
    ssl_keystore_certificate_chain = Setting(
        PASSWORD, None, mode=PER_BROKER,
        doc="The broker's certificate and those that certify it, PEM, instead of a file.",
    )
    ssl_key_password = Setting(PASSWORD, None, mode=PER_BROKER, doc="Password of an encrypted key.")
    ssl_truststore_type = Setting(
        STRING, "JKS", one_of_any_case(*(name.lower() for name in STORE_TYPES)), mode=PER_BROKER,
        doc="PEM or PKCS12. Stores in the format JKS cannot be read.",
    )
    ssl_truststore_location = Setting(
        STRING, None, mode=PER_BROKER,
        doc="File with the certificates that sign those of clients and of other brokers.",
    )
    ssl_truststore_password = Setting(PASSWORD, None, mode=PER_BROKER, doc="Password of a PKCS12 trust store.")
    ssl_truststore_certificates = Setting(
        PASSWORD, None, mode=PER_BROKER,
        doc="The trusted certificates, PEM, instead of a file.",
    )
    ssl_crl_location = Setting(
        STRING, None,
        doc="File with lists of revoked certificates (CRL), PEM. With it a certificate needs a list of its authority.",
    )
    ssl_allow_dn_changes = Setting(
        BOOLEAN, False,
        doc="Whether a certificate that is loaded while the broker runs may have another distinguished name.",
    )
    ssl_allow_san_changes = Setting(
        BOOLEAN, False,
        doc="Whether a certificate that is loaded while the broker runs may lack names that the last one had.",
    )
    ssl_engine_factory_class = Setting(
        CLASS, None, _no_class("TLS is OpenSSL's here"),
        doc="A Java class; a broker with this setting does not start.",
    )
    ssl_principal_mapping_rules = Setting(
        STRING, "DEFAULT",
        doc="How the name of a user is made of the distinguished name of a certificate: RULE:pattern/replacement/[LU].",
    )
    principal_builder_class = Setting(
        CLASS, PRINCIPAL_BUILDER, one_of(PRINCIPAL_BUILDER),
        doc="Kafka's own builder only: a Java class cannot be used.",
    )
    # Secrets that are set while the broker runs
    password_encoder_secret = Setting(
        PASSWORD, None,
        doc="Encrypts passwords and keys that are set while the broker runs. Unset: such settings are refused.",
    )
    password_encoder_old_secret = Setting(
        PASSWORD, None,
        doc="The last such secret, after a change: what it encrypted is encrypted anew when the broker starts.",
    )
    password_encoder_iterations = Setting(
        INT, 4096, between(1024, 10_000_000),
        doc="Iterations by which a key is derived from that secret.",
    )
    allow_anonymous_network = Setting(
        BOOLEAN, False,
        doc="Let `ottla up` listen beyond this machine without authentication and without an authorizer.",
    )
    # TLS to ZooKeeper
    zookeeper_ssl_keystore_location = Setting(STRING, None, doc="File with this broker's key and certificate, PEM.")
    zookeeper_ssl_keystore_password = Setting(PASSWORD, None, doc="Password of that key.")
    zookeeper_ssl_keystore_type = Setting(
        STRING, None, one_of_any_case("pem"),
        doc="PEM. Other stores cannot be read.",
    )
    zookeeper_ssl_truststore_location = Setting(
        STRING, None,
        doc="File with the certificates that sign those of ZooKeeper, PEM. Unset: public authorities.",
    )
    zookeeper_ssl_truststore_type = Setting(
        STRING, None, one_of_any_case("pem"),
        doc="PEM. Other stores cannot be read.",
    )
    zookeeper_ssl_endpoint_identification_algorithm = Setting(
        STRING, "HTTPS", one_of_any_case("https", ""),
        doc="Whether the certificate of ZooKeeper must have its host name. Empty: it need not.",
    )
    # SASL
    sasl_enabled_mechanisms = Setting(
        LIST, ("GSSAPI",), each_of("GSSAPI", *MECHANISMS),
        doc="Mechanisms by which clients may authenticate. GSSAPI (Kerberos) is not supported: name another.",
    )
    sasl_mechanism_inter_broker_protocol = Setting(
        STRING, "GSSAPI", one_of("GSSAPI", *MECHANISMS),
        doc="Mechanism by which brokers authenticate with each other: PLAIN, SCRAM or OAUTHBEARER.",
    )
    sasl_jaas_config = Setting(
        PASSWORD, None,
        doc="Users of PLAIN, and the name and password of this broker. Usually set for a listener and a mechanism.",
    )
    sasl_server_callback_handler_class = Setting(
        CLASS, None, one_of(*OAUTH_VALIDATORS),
        doc="Kafka's own validator of OAuth tokens only: a Java class cannot be used.",
    )
    sasl_server_max_receive_size = Setting(
        INT, 524_288, at_least(1),
        doc="Largest request of a client that has not authenticated.",
    )
    initial_scram_credentials = Setting(
        PASSWORD, None,
        doc="Users that are created at the start if they do not exist: SCRAM-SHA-256=[name=alice,password=...],...",
    )
    connections_max_reauth_ms = Setting(
        LONG, 0, at_least(0),
        doc="Time after which a client has to authenticate again (KIP-368). 0: when its token expires, if it has one.",
    )
    connection_failed_authentication_delay_ms = Setting(
        INT, 100, at_least(0),
        doc="How long the answer to a failed authentication is held back.",
    )
    sasl_login_read_timeout_ms = Setting(INT, None, at_least(1), doc="Time for an OAuth provider to answer.")
    # OAUTHBEARER
    sasl_oauthbearer_jwks_endpoint_url = Setting(
        STRING, None,
        doc="Keys of the OAuth provider (JWKS): https or file URL, one of sasl.oauthbearer.allowed.urls.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = Setting(
        LONG, 3_600_000, at_least(1),
        doc="How often the keys are fetched again.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = Setting(
        LONG, 100, at_least(0),
        doc="Pause after the keys could not be fetched; it doubles.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = Setting(LONG, 10_000, at_least(0), doc="Longest such pause.")
    sasl_oauthbearer_allowed_urls = Setting(
        LIST, (),
        doc="URLs that keys and tokens may come from. It is a system property in Kafka, whose name is accepted too.",
    )
    sasl_oauthbearer_expected_issuer = Setting(STRING, None, doc="Issuer (iss) that tokens must have.")
    sasl_oauthbearer_expected_audience = Setting(
        LIST, (),
        doc="Audiences (aud), one of which a token must have. Empty: any.",
    )
    sasl_oauthbearer_clock_skew_seconds = Setting(
        INT, 30, between(0, 3600),
        doc="How far the clocks of broker and provider may differ.",
    )
    sasl_oauthbearer_scope_claim_name = Setting(STRING, "scope", doc="Claim with the scopes of a token.")
    sasl_oauthbearer_sub_claim_name = Setting(STRING, "sub", doc="Claim with the name of the user.")
    sasl_oauthbearer_token_endpoint_url = Setting(
        STRING, None,
        doc="Where this broker gets the token by which it enters others: https or file URL, an allowed one.",
    )
    sasl_oauthbearer_client_credentials_client_id = Setting(
        STRING, None,
        doc="Client id of this broker at the token endpoint. The login module may have it too (clientId).",
    )
    sasl_oauthbearer_client_credentials_client_secret = Setting(PASSWORD, None, doc="Secret of that client.")
    sasl_oauthbearer_scope = Setting(STRING, None, doc="Scope that the token endpoint is asked for.")
    # Delegation tokens
    delegation_token_secret_key = Setting(
        PASSWORD, None,
        doc="Secret by which delegation tokens are made, the same on all brokers. Unset: there are no such tokens.",
    )
    delegation_token_max_lifetime_ms = Setting(
        LONG, 604_800_000, at_least(1),
        doc="Longest life of a delegation token.",
    )
    delegation_token_expiry_time_ms = Setting(
        LONG, 86_400_000, at_least(1),
        doc="Life of a delegation token that is not renewed.",
    )
    delegation_token_expiry_check_interval_ms = Setting(
        LONG, 3_600_000, at_least(1),
        doc="How often expired delegation tokens are removed.",
    )
# fmt: on


OLD_NAMES: Mapping[str, str] = {
    "delegation.token.master.key": "delegation.token.secret.key",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls": "sasl.oauthbearer.allowed.urls",
}
"""Names that Kafka had or has for a setting -> the name in the table."""


def split_listener_key(name: str) -> ListenerKey | None:
    """The parts of the name of a setting of one listener; None if it is the name of another setting."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, dot, setting = name[len(LISTENER_PREFIX) :].partition(".")
    if not listener or not dot:
        return None
    for mechanism in ("gssapi", *(each.lower() for each in MECHANISMS)):
        if setting.startswith(f"{mechanism}."):
            return ListenerKey(listener.upper(), mechanism, setting[len(mechanism) + 1 :])
    return ListenerKey(listener.upper(), "", setting)
