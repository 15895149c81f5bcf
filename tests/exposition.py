"""A strict parser of the Prometheus text format 0.0.4: everything that some scraper may reject is an error here."""

import re
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({NAME}) ((?:[^\\\n]|\\\\|\\n)+)")
_TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
_SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? ([-+]?(?:[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?|Inf)|NaN)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(?:,|$)')
_SUFFIXES = ("_bucket", "_sum", "_count")


class FormatError(AssertionError):
    """The text is not valid in the format of Prometheus."""


@dataclass
class Family:
    name: str
    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


class Exposition:
    """All metric families of a text, parsed and checked."""

    def __init__(self, text: str) -> None:
        self.families: dict[str, Family] = {}
        if not text.endswith("\n") or "\r" in text:
            raise FormatError("a line does not end with a line feed")
        lines = iter(text[:-1].split("\n"))
        current: Family | None = None
        for line in lines:
            if line.startswith("#"):
                current = self._read_head(line, next(lines, ""))
            elif current is None:
                raise FormatError(f"a sample without HELP and TYPE: {line}")
            else:
                _add_sample(current, line)
        for family in self.families.values():
            _check(family)

    def _read_head(self, first: str, second: str) -> Family:
        help_line, type_line = _HELP.fullmatch(first), _TYPE.fullmatch(second)
        if help_line is None or type_line is None or help_line[1] != type_line[1]:
            raise FormatError(f"not HELP and TYPE of one metric: {first!r} {second!r}")
        if help_line[1] in self.families:
            raise FormatError(f"{help_line[1]} occurs twice")
        family = self.families[help_line[1]] = Family(help_line[1], type_line[2], help_line[2])
        return family

    def value(self, name: str, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        family = self.families.get(name) or self.families[re.sub("_(bucket|sum|count)$", "", name)]
        return family.samples[name, tuple(sorted(labels.items()))]

    def find_label_values(self, name: str, label: str) -> set[str]:
        """All values that a label has in a family."""
        return {value for _, labels in self.families[name].samples for key, value in labels if key == label}


def _add_sample(family: Family, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise FormatError(f"not a sample: {line!r}")
    name, labels, value = match[1], _parse_labels(match[2]), match[3]
    allowed = [family.name + suffix for suffix in _SUFFIXES] if family.kind == "histogram" else [family.name]
    if name not in allowed:
        raise FormatError(f"{name} is among the samples of {family.name}")
    if (name, labels) in family.samples:
        raise FormatError(f"{line} occurs twice")
    family.samples[name, labels] = float(value)


def _parse_labels(text: str | None) -> Labels:
    if text is None:
        return ()
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None or match[1] in found:
            raise FormatError(f"not labels: {text!r}")
        found[match[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), match[2])
        position = match.end()
    if not found or text.endswith(","):
        raise FormatError(f"not labels: {text!r}")
    return tuple(sorted(found.items()))


def _check(family: Family) -> None:
    if not family.samples:
        raise FormatError(f"{family.name} has no samples")
    if family.kind == "counter" and (not family.name.endswith("_total") or min(family.samples.values()) < 0):
        raise FormatError(f"{family.name} is no counter")
    if family.kind == "histogram":
        _check_histogram(family)


def _check_histogram(family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            bound = dict(labels)["le"]
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(bound), value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        if list(bounds) != sorted(set(bounds)) or list(counts) != sorted(counts) or bounds[-1] != float("inf"):
            raise FormatError(f"{family.name}{labels}: buckets {buckets}")
        if family.samples[family.name + "_count", labels] != counts[-1]:
            raise FormatError(f"{family.name}{labels}: the last bucket is not the count")
        if (family.name + "_sum", labels) not in family.samples:
            raise FormatError(f"{family.name}{labels}: no sum")
