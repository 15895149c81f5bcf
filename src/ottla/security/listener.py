"""The security of one listener: TLS, the names of users with certificates, SASL. Made of the listener's settings.

The TLS context is replaced when settings or files change: connections that are open keep theirs, new ones get the new
one. A certificate that cannot be loaded changes nothing but the log.
"""

import logging
from collections.abc import Callable
from random import Random

from ottla.config import BrokerConfig, ConfigError, Listener
from ottla.config.security_table import LISTENER_PREFIX
from ottla.security import jaas, plain
from ottla.security.names import describe_certificate, read_rules
from ottla.security.principal import ANONYMOUS, Principal
from ottla.security.replacements import check_replacement
from ottla.security.sasl import Credentials, ListenerSasl, SaslSession
from ottla.security.stores import find_files, stat_files
from ottla.security.tls import TlsContext, build_server_context
from ottla.system.threads import Offload

logger = logging.getLogger(__name__)


class ListenerSecurity:
    """What clients of a listener go through. `build_security` makes one."""

    def __init__(self, listener: Listener, config: BrokerConfig, sasl: ListenerSasl | None) -> None:
        self.listener = listener
        self.sasl = sasl
        self.context: TlsContext | None = None
        """The TLS context of new connections; None on a listener without TLS."""
        self._config = config
        self._prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
        self._files: tuple[object, ...] = ()
        self._prepared: tuple[tuple[object, ...], TlsContext | None] = ((), None)
        """Settings that were checked, and their context: files are not read again when the settings come into force."""
        self._find_name: Callable[[str], str] | None = None
        own = config.of_listener(listener.name)
        if listener.protocol in ("SSL", "SASL_SSL"):
            self.context = self._build(config)
            self._files = stat_files(find_files(own))
        if listener.protocol == "SSL":
            self._find_name = read_rules(own.ssl_principal_mapping_rules)

    @property
    def has_tls(self) -> bool:
        return self.context is not None

    def identify(self, certificate: bytes | None) -> Principal:
        """Who has shown a certificate (DER). NoMatchingRule if the rules give no name to its owner."""
        if certificate is None or self._find_name is None:
            return ANONYMOUS
        return Principal("User", self._find_name(describe_certificate(certificate)))

    def begin_session(self, now_s: Callable[[], float]) -> SaslSession | None:
        return None if self.sasl is None else SaslSession(self.sasl, now_s)

    # New certificates

    def check(self, config: BrokerConfig) -> None:
        """ConfigError if the certificates of these settings cannot be used. It reads files: call it in a thread."""
        if self.has_tls and self._differs(config):
            context = self._build(config)
            check_replacement(self._own(self._config), self._own(config), self._prefix)
            self._prepared = (self._read_ssl(config), context)

    def follow(self, config: BrokerConfig) -> None:
        """Use other settings from now on. If their certificates cannot be used, the last ones stay."""
        if self.has_tls and self._differs(config):
            self._replace(config)
        self._config = config

    def reload(self) -> None:
        """Load certificates whose files have changed. It reads files: call it in a thread."""
        if not self.has_tls:
            return
        files = stat_files(find_files(self._own(self._config)))
        if files != self._files:
            self._replace(self._config)
            self._files = files

    def _replace(self, config: BrokerConfig) -> None:
        settings, context = self._prepared
        self._prepared = ((), None)
        try:
            self.context = (
                context if context is not None and settings == self._read_ssl(config) else self._build(config)
            )
        except ConfigError as error:
            logger.error("the certificates of listener %s stay as they are: %s", self.listener.name, error)
        else:
            logger.info("listener %s has new certificates", self.listener.name)

    def _own(self, config: BrokerConfig) -> BrokerConfig:
        return config.of_listener(self.listener.name)

    def _differs(self, config: BrokerConfig) -> bool:
        return self._read_ssl(self._config) != self._read_ssl(config)

    def _read_ssl(self, config: BrokerConfig) -> tuple[object, ...]:
        own = self._own(config)
        return tuple(own.value(name) for name in config.table if name.startswith("ssl."))

    def _build(self, config: BrokerConfig) -> TlsContext:
        own = self._own(config)
        client_auth = own.ssl_client_auth.lower()
        if self.listener.protocol == "SASL_SSL" and f"{self._prefix}ssl.client.auth" not in config.given:
            client_auth = "none"  # as in Kafka: the mechanism says who the client is
        prefix = self._prefix if any(name.startswith(f"{self._prefix}ssl.") for name in config.given) else ""
        return build_server_context(own, prefix, client_auth)


def build_security(
    listener: Listener,
    config: BrokerConfig,
    credentials: Credentials,
    random: Random,
    now_ms: Callable[[], int],
    offload: Offload,
) -> ListenerSecurity | None:
    """The security of a listener; None of a PLAINTEXT one. ConfigError names the setting that is wrong."""
    if listener.protocol == "PLAINTEXT":
        return None
    sasl = None
    if listener.protocol.startswith("SASL_"):
        sasl = _build_sasl(listener, config, credentials, random, now_ms, offload)
    return ListenerSecurity(listener, config, sasl)


def _build_sasl(
    listener: Listener,
    config: BrokerConfig,
    credentials: Credentials,
    random: Random,
    now_ms: Callable[[], int],
    offload: Offload,
) -> ListenerSasl:
    own = config.of_listener(listener.name)
    mechanisms = own.sasl_enabled_mechanisms
    if not mechanisms or "GSSAPI" in mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms: listener {listener.name} needs PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or "
            f"OAUTHBEARER; GSSAPI (Kerberos) is not supported"
        )
    users: dict[str, str] = {}
    for mechanism in mechanisms:
        module = read_module(config, listener.name, mechanism)
        if mechanism == "PLAIN" and module is not None:
            users = plain.read_users(module.options)
    if "PLAIN" in mechanisms:
        if not users:
            key = f"{LISTENER_PREFIX}{listener.name.lower()}.plain.sasl.jaas.config"
            raise ConfigError(f'{key}: PLAIN needs users, as in {jaas.PLAIN_MODULE} required user_alice="password";')
        if listener.protocol == "SASL_PLAINTEXT":
            logger.warning("listener %s takes passwords without encryption (PLAIN, SASL_PLAINTEXT)", listener.name)
    oauth = None
    if "OAUTHBEARER" in mechanisms:
        from ottla.security.oauth import OAuthValidator  # few brokers need it

        login = read_module(config, listener.name, "OAUTHBEARER")
        own = config.of_listener(listener.name, "OAUTHBEARER")
        oauth = OAuthValidator(own, now_ms, offload, None if login is None else login.options)
    return ListenerSasl(
        mechanisms,
        credentials,
        random,
        now_ms,
        plain_users=users,
        oauth=oauth,
        reauthentication_ms={
            each: config.of_listener(listener.name, each).connections_max_reauth_ms for each in mechanisms
        },
        receive_bytes_max=own.sasl_server_max_receive_size,
        failure_delay_s=own.connection_failed_authentication_delay_ms / 1000,
    )


def read_module(config: BrokerConfig, listener: str, mechanism: str) -> jaas.LoginModule | None:
    """The login module of a mechanism of a listener; None if there is none, or if it is that of another mechanism."""
    own_key = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text = config.of_listener(listener, mechanism).sasl_jaas_config
    if text is None:
        return None
    key = next(
        (each for each in (own_key, f"{LISTENER_PREFIX}{listener.lower()}.sasl.jaas.config") if each in config.given),
        "sasl.jaas.config",
    )
    try:
        return jaas.read_login_module(key, mechanism, text)
    except jaas.OtherMechanism:
        if key == own_key:
            raise
        return None  # a setting of all mechanisms names the module of one of them
