"""A ban: names that modules may not use, where it holds, and the modules that are exceptions.

Patterns are the names that `source.uses` produces; `*` matches anything, dots included.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cache

from tests.tidy.source import Finding, Module, names_used, uses, within

EVERYWHERE = ("ottla", "pyspark_ottla")


@dataclass(frozen=True)
class Ban:
    name: str
    forbidden: tuple[str, ...]
    harmless: tuple[str, ...] = ()
    where: tuple[str, ...] = EVERYWHERE
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Module (or package) -> why it is the exception."""
    wrong: tuple[str, ...] = ()
    """Snippets that this ban must catch."""
    right: tuple[str, ...] = ()
    """Snippets that it must let pass."""

    def findings(self, module: Module) -> Iterator[Finding]:
        """Every line that breaks this ban, exceptions applied."""
        if not any(within(module.name, allowed) for allowed in self.allowed):
            yield from self.findings_without_exceptions(module)

    def findings_without_exceptions(self, module: Module) -> Iterator[Finding]:
        if not any(within(module.name, place) for place in self.where):
            return
        lines: dict[int, str] = {}
        forbidden = _forbidden_among(names_used(module), self.forbidden, self.harmless)
        if not forbidden:
            return
        for line, name in uses(module):
            if name in forbidden:
                lines.setdefault(line, name)
        for line, name in sorted(lines.items()):
            yield Finding(module.name, line, f"{self.name}: {name}")


def _forbidden_among(names: Set[str], forbidden: tuple[str, ...], harmless: tuple[str, ...]) -> set[str]:
    return {name for name in names if _forbids(name, forbidden, harmless)}


@cache
def _forbids(name: str, forbidden: tuple[str, ...], harmless: tuple[str, ...]) -> bool:
    """Kept for each name: most modules use the same ones."""
    bare = name.removesuffix("()")
    if _any_of(harmless)(bare):
        return name in forbidden
    matches = _any_of(forbidden)
    return bool(matches(name) or matches(bare))


@cache
def _any_of(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    """One regular expression for many patterns."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)").match
