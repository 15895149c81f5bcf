"""The name of a user who shows a certificate: its distinguished name, and the rules that make a shorter one of it.

The distinguished name is written as Java does (RFC 2253), the last part first: `CN=alice,OU=sales,O=Example,C=DE`.
ssl.principal.mapping.rules is a list of `DEFAULT` and `RULE:pattern/replacement/[LU]`. The first rule whose pattern
matches the whole name makes the user's name of it; L and U change it to lower or upper case.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.config import ConfigError

if TYPE_CHECKING:
    from cryptography.x509 import Name, NameAttribute

SETTING = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER = re.compile(_RULE)
_REFERENCE = re.compile(r"\\(.)|\$([0-9]+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|\$", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<([A-Za-z])")

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.6": "C",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}


class NoMatchingRule(Exception):
    """No rule applies to a distinguished name, so its owner has no name here."""


class Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: the default rule, which leaves the name as it is."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replaced = self.pattern.sub(lambda match: _expand(match, self.replacement), name)
        return replaced.lower() if self.case == "L" else replaced.upper() if self.case == "U" else replaced


def read_rules(text: str, setting: str = SETTING) -> Callable[[str], str]:
    """A function from a distinguished name to the name of a user; it raises NoMatchingRule."""
    rules: list[Rule] = []
    for match in _SPLITTER.finditer(text.strip()):
        parsed = _PARSER.fullmatch(match[1])
        if parsed is None or (parsed[5] or "").strip():
            raise ConfigError(f"{setting}: {match[1]!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        if parsed[1]:
            rules.append(Rule(None))
        elif parsed[2] is not None:
            try:
                pattern = re.compile(_NAMED_GROUP.sub(r"(?P<\1", parsed[2]))
            except re.error as error:
                raise ConfigError(f"{setting}: {parsed[2]!r} is no regular expression: {error}") from None
            rules.append(Rule(pattern, parsed[3], parsed[4] or ""))

    def find_name(distinguished_name: str) -> str:
        for rule in rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoMatchingRule(f"no rule of {setting} applies to {distinguished_name!r}")

    return find_name


def _expand(match: re.Match[str], replacement: str) -> str:
    """Java's replacement syntax: `$1`, `${name}`, and a backslash before a character that stands for itself.

    The digits of a group's number are read as long as there is such a group; a number without a group stands for
    itself.
    """

    def replace(found: re.Match[str]) -> str:
        literal, digits, name = found.groups()
        if literal is not None:
            return str(literal)
        if name is not None:
            try:
                return match[name] or ""
            except IndexError:
                return str(found[0])
        if digits is None:
            return "$"
        for size in range(len(digits), 0, -1):
            number = int(digits[:size])
            if number <= match.re.groups:
                return (match[number] or "") + digits[size:]
        return str(found[0])

    return _REFERENCE.sub(replace, replacement)


def describe_certificate(der: bytes) -> str:
    """The distinguished name of the owner of a certificate."""
    from cryptography import x509  # only listeners with mutual TLS need it

    return write_distinguished_name(x509.load_der_x509_certificate(der).subject)


def write_distinguished_name(name: "Name") -> str:
    return ",".join("+".join(map(_write_attribute, sorted_parts)) for sorted_parts in reversed(list(name.rdns)))


def _write_attribute(attribute: "NameAttribute[Any]") -> str:
    short = _SHORT_NAMES.get(attribute.oid.dotted_string)
    value = attribute.value
    if short is not None and isinstance(value, str):
        return f"{short}={_escape(value)}"
    content = value.encode() if isinstance(value, str) else value
    tag = int(attribute._type.value)
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    if 128 <= size < 256:
        length = bytes([0x81, size])
    return f"{attribute.oid.dotted_string}=#{(bytes([tag]) + length + content).hex()}"


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
