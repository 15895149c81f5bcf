"""The project's own source as data: its modules, what each imports, and which outside names each one uses."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Module:
    """One Python module: its dotted name, whether it is a package's `__init__`, and its text."""

    name: str
    text: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """The tree laid out flat, outer nodes before inner ones."""
        return _walked(self.text)


@dataclass(frozen=True)
class Finding:
    """A line that breaks a rule."""

    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _walked(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(text)))


@cache
def modules() -> tuple[Module, ...]:
    """Every module under `src`, in the order of their paths, parsed."""
    gc.disable()  # a million nodes stay, and it would look at all of them again and again
    try:
        found = [*_read_modules()]
        for module in found:
            module.nodes  # noqa: B018 - kept for those who ask later
    finally:
        gc.enable()
    return tuple(found)


def forget_modules() -> None:
    """Free what was parsed."""
    for kept in (modules, uses, names_used, _walked, _parsed):
        kept.cache_clear()


def _read_modules() -> Iterator[Module]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield Module(name, path.read_text(encoding="utf-8"), is_package)


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that belongs to the project: what git tracks or would track. Empty outside a git checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return ()
    paths = (ROOT / name for name in sorted(listing.decode().split("\0")) if name)
    return tuple(path for path in paths if path.is_file())


def within(name: str, prefix: str) -> bool:
    """Whether a module is `prefix` or lies below it."""
    return name == prefix or name.startswith(prefix + ".")


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a module imports, wherever in it the import stands."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = _import_base(module, node)
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


@cache
def uses(module: Module) -> tuple[tuple[int, str], ...]:
    """(line, name) of every outside name a module mentions, as the rules of `bans` write them.

    `time.monotonic`         a name that came by import, under whatever alias
    `random.Random()`        the same, called
    `?.create_task`          an attribute of something whose origin is not known
    `builtins.open`          a bare name that was not imported
    `syntax.async`           async def, await, async for, async with
    `syntax.set_iteration`   a loop over an expression that is plainly a set
    """
    return tuple(_uses(module))


@cache
def names_used(module: Module) -> frozenset[str]:
    """The names of `uses`, each once."""
    return frozenset(name for _, name in uses(module))


def _uses(module: Module) -> Iterator[tuple[int, str]]:
    yield from imports(module)
    origins = _origins(module)
    inner: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.Call):
            name = _dotted(node.func, origins)
            if name:
                yield node.lineno, name + "()"
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            part: ast.expr = node
            while isinstance(part, ast.Attribute):
                part = part.value
                inner.add(id(part))
            name = _dotted(node, origins)
            if name:
                yield node.lineno, name
        yield from _syntax(node)


def _syntax(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
        yield node.lineno, "syntax.async"
    iterated = node.iter if isinstance(node, ast.For | ast.comprehension) else None
    if iterated is not None and _is_set(iterated):
        yield iterated.lineno, "syntax.set_iteration"


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")


def _import_base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
    package = package[: len(package) - (node.level - 1)]
    return ".".join([*package, node.module] if node.module else package)


def _origins(module: Module) -> dict[str, str]:
    """Local name -> the dotted name it was imported from."""
    origins: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    origins[alias.asname] = alias.name
                else:
                    top = alias.name.split(".")[0]
                    origins[top] = top
        elif isinstance(node, ast.ImportFrom):
            base = _import_base(module, node)
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{base}.{alias.name}"
    return origins


def _dotted(node: ast.expr, origins: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return origins.get(node.id, f"builtins.{node.id}")
    if isinstance(node, ast.Attribute):
        base: ast.expr = node
        attributes: list[str] = []
        while isinstance(base, ast.Attribute):
            attributes.append(base.attr)
            base = base.value
        attributes.reverse()
        if isinstance(base, ast.Name) and base.id in origins:
            return ".".join([origins[base.id], *attributes])
        return "?." + ".".join(attributes)
    return None
