"""Security settings of every client of ours: the names of the Java client and those of librdkafka mean the same.

    security.protocol                     plaintext, ssl, sasl_plaintext or sasl_ssl
    sasl.mechanism, sasl.mechanisms       PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    sasl.username, sasl.password          or sasl.jaas.config, as in Java
    sasl.oauthbearer.*                    where a token comes from (`tokens.py`)
    ssl.*                                 certificates and keys, as files or as text (`stores.py`)

`translate_settings` is the one translation: Java's names become librdkafka's. Settings that ask for what is not
possible raise ValueError with their names; the values of secret ones are in no message. The modules of TLS and SASL are
imported when settings ask for them: they take longer to import than most commands take to answer.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import ssl

    from ottla.client.sasl import Login

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HIDDEN: Final = "(secret)"

_SECRET: Final = re.compile(
    r"password|secret|jaas|passphrase|\.key$|key\.pem|oauthbearer\.(token|config)$|credential|auth\.(user\.info|token)$"
)
_TEXTS: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""PEM texts: the Java client's name -> librdkafka's."""
_JAVA_OAUTH: Final = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_LOGIN_OAUTH: Final = {
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
_JAVA_ONLY: Final = re.compile(
    r"ssl\.truststore\..*|ssl\.keystore\.(type|certificate\.chain|key)|ssl\.(protocol|provider|enabled\.protocols)"
    r"|ssl\.(key|trust)manager\.algorithm|ssl\.secure\.random\.implementation|ssl\.engine\.factory\.class"
    r"|security\.providers|sasl\.jaas\.config|sasl\.login\..*|sasl\.client\.callback\.handler\.class"
    r"|sasl\.oauthbearer\.(client\.credentials\..*|jwt\..*|jwks\..*|expected\..*|scope\.claim\.name|sub\.claim\.name"
    r"|clock\.skew\.seconds|header\.urlencode)"
)
"""Security settings that librdkafka does not know. What they mean is in the settings that they were translated to."""
_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


class Security(NamedTuple):
    """How to connect: with TLS if there is a context, with SASL if there is a login."""

    context: "ssl.SSLContext | None" = None
    login: "Login | None" = None

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "Security":
        """From settings with the names of either client. ValueError, which names the setting, if one is not valid."""
        protocol = find_protocol(settings)
        if protocol == "PLAINTEXT":
            return cls()
        from ottla.client.stores import make_context

        found = translate_settings(settings)
        context = make_context(found) if protocol.endswith("SSL") else None
        return cls(context, _read_login(found) if protocol.startswith("SASL") else None)


def is_secret(name: str) -> bool:
    """Whether the value of a client's setting must not be shown."""
    return _SECRET.search(name.lower()) is not None and not name.endswith((".location", ".url"))


def is_java_only(name: str) -> bool:
    """Whether only the Java client has this setting of security; what it says is translated for the others."""
    return _JAVA_ONLY.fullmatch(name) is not None


def hide_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, fit to be shown."""
    return {name: HIDDEN if is_secret(name) else value for name, value in settings.items()}


def find_protocol(settings: Mapping[str, str]) -> str:
    protocol = settings.get("security.protocol", "plaintext").strip().upper()
    if protocol not in PROTOCOLS:
        names = ", ".join(PROTOCOLS)
        raise ValueError(f"security.protocol: {protocol.lower()!r} is unknown; there are {names.lower()}")
    return protocol


def translate_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with librdkafka's names. Others stay as they are; librdkafka's own win over Java's."""
    found = dict(settings)
    protocol = find_protocol(settings)
    if "sasl.mechanisms" in found:
        found["sasl.mechanism"] = found.pop("sasl.mechanisms")
    if protocol.startswith("SASL"):
        _translate_login(settings, found)
    if protocol.endswith("SSL"):
        for java, ours in _TEXTS.items():
            if java in settings:
                found.setdefault(ours, settings[java])
        _translate_stores(settings, found)
    if not found.get("ssl.endpoint.identification.algorithm", "https").strip():
        found["ssl.endpoint.identification.algorithm"] = "none"  # for the Java client an empty value means none
    return found


def make_librdkafka_settings(settings: Mapping[str, str]) -> dict[str, str | Callable[[str], tuple[str, float]]]:
    """The settings of a client of confluent-kafka: translated, and with a function that finds bearer tokens."""
    from ottla.client.stores import repair_pem

    found: dict[str, str | Callable[[str], tuple[str, float]]] = {}
    protocol = find_protocol(settings)
    for name, value in translate_settings(settings).items():
        if _JAVA_ONLY.fullmatch(name) is None:
            found[name] = repair_pem(value) if name.endswith(".pem") else value
    if not protocol.startswith("SASL"):
        return {name: value for name, value in found.items() if not name.startswith("sasl.")}
    login = _read_login(translate_settings(settings))
    if login.is_delegation_token:
        raise ValueError("sasl.jaas.config: librdkafka cannot log in with a delegation token (tokenauth)")
    tokens = login.tokens
    if tokens is not None:
        found = {name: value for name, value in found.items() if not name.startswith("sasl.oauthbearer.")}
        found["oauth_cb"] = lambda _: tokens.find_token()
    return found


def _translate_stores(settings: Mapping[str, str], found: dict[str, str]) -> None:
    """Java's trust store becomes text or a PEM file. Its key store keeps its name if it is PKCS12, as in librdkafka."""
    from ottla.client.stores import read_key_store, read_trust_store

    trusted = settings.get("ssl.truststore.location")
    if trusted and "ssl.ca.location" not in found and "ssl.ca.pem" not in found:
        found["ssl.ca.pem"] = read_trust_store(trusted, settings.get("ssl.truststore.password", ""))
    own = settings.get("ssl.keystore.location")
    if own and read_key_store(own, settings.get("ssl.keystore.password", "")) is None:
        del found["ssl.keystore.location"]
        found.setdefault("ssl.certificate.location", own)
        found.setdefault("ssl.key.location", own)


def _translate_login(settings: Mapping[str, str], found: dict[str, str]) -> None:
    for java, ours in _JAVA_OAUTH.items():
        if java in settings:
            found.setdefault(ours, settings[java])
    options = read_jaas_options(settings.get("sasl.jaas.config", ""))
    for option in ("username", "password", "tokenauth"):
        if option in options:
            found.setdefault(f"sasl.{option}", options[option])
    for option, ours in _LOGIN_OAUTH.items():
        if option in options:
            found.setdefault(ours, options[option])
    extensions = [f"{name[10:]}={value}" for name, value in options.items() if name.startswith("extension_")]
    if extensions:
        found.setdefault("sasl.oauthbearer.extensions", ",".join(extensions))


def read_jaas_options(text: str) -> dict[str, str]:
    """The options of the login module in a value of sasl.jaas.config. The module itself is Java's and never loaded."""
    return {
        option: re.sub(r"\\(.)", r"\1", double or single) if double or single else bare
        for option, double, single, bare in _OPTION.findall(text)
    }


def _read_login(settings: Mapping[str, str]) -> "Login":
    """From translated settings."""
    from ottla.client.sasl import MECHANISMS, Login
    from ottla.client.tokens import read_token_source

    mechanism = settings.get("sasl.mechanism", "").strip().upper()
    if mechanism not in MECHANISMS:
        what = f"{mechanism!r} is not supported" if mechanism else "it is not set"
        raise ValueError(f"sasl.mechanism: {what}; there are {', '.join(MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return Login(mechanism, tokens=read_token_source(settings))
    for name in ("sasl.username", "sasl.password"):
        if not settings.get(name):
            raise ValueError(f"{name}: {mechanism} needs it, or sasl.jaas.config as in Java")
        if "\0" in settings[name]:
            raise ValueError(f"{name}: it has a NUL character")
    is_token = settings.get("sasl.tokenauth", "").lower() == "true" and mechanism != "PLAIN"
    return Login(mechanism, settings["sasl.username"], settings["sasl.password"], is_token)
