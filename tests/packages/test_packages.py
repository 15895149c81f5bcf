"""The wheels and source archives: complete, reproducible, and used as somebody who installs them uses them."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import venv
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import ottla
from tests.clients.browser import find_chromium, open_browser, open_page
from tests.needs import require_program, skip_without
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROJECTS = (ROOT, ROOT / "packages" / "kafka-tools")
BASE_IMAGE = os.environ.get("OTTLA_TEST_BASE_IMAGE", "docker.io/library/python:3.12-slim")


def build(project: Path, into: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-d", str(into), cwd=project)


def run(*command: str, cwd: Path | None = None, given: str | None = None) -> str:
    ended = subprocess.run(
        command, cwd=cwd, input=given, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment()
    )
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def clean_environment() -> Mapping[str, str]:
    """This process's environment without what leads Python to the source tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OTTLA_BOOTSTRAP")}


def hash_files(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def await_text(address: str, text: str) -> None:
    """Wait until a page has this text in it: the console asks the cluster every few seconds."""
    deadline = time.monotonic() + PATIENCE_S
    page = ""
    while text not in page:
        assert time.monotonic() < deadline, page
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            page = answer.read().decode()


def find(directory: Path, pattern: str) -> Path:
    (found,) = directory.glob(pattern)
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the wheel and the source archive of each project."""
    directory = tmp_path_factory.mktemp("packages")
    for project in PROJECTS:
        build(project, directory)
    return directory


def test_a_source_archive_gives_the_same_files_again(packages: Path, tmp_path: Path) -> None:
    # Unpacked in another directory, with other times: the archive is complete, and a build depends on nothing else.
    again = tmp_path / "again"
    for archive in packages.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path, filter="data")
        project = tmp_path / archive.name.removesuffix(".tar.gz")
        (project / "PKG-INFO").unlink()  # the build itself has added it
        for path in project.rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        build(project, again)
    assert hash_files(again) == hash_files(packages)


def test_the_wheel_holds_every_file_and_nothing_else(packages: Path) -> None:
    with zipfile.ZipFile(find(packages, "ottla-*.whl")) as wheel:
        held = {entry.filename: entry for entry in wheel.infolist() if ".dist-info/" not in entry.filename}
    source = ROOT / "src"
    files = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert set(held) == {path.relative_to(source).as_posix() for path in files}
    executable = {path.relative_to(source).as_posix() for path in files if path.stat().st_mode & 0o100}
    assert {name for name, entry in held.items() if entry.external_attr >> 16 & 0o100} == executable


class Installation:
    """A virtual environment with the wheels in it, and a directory to work in that is not the source tree."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "bin"
        self.home = directory / "home"
        self.home.mkdir(parents=True)

    def run(self, *command: str, given: str | None = None) -> str:
        return run(str(self.bin / command[0]), *command[1:], cwd=self.home, given=given)

    @contextmanager
    def serve(self, *options: str) -> Iterator[tuple[str, str]]:
        """Run `ottla up`. Gives the address of the broker and that of its console, and stops it with Ctrl-C."""
        command = [str(self.bin / "ottla"), "up", "--port", "0", "--data", str(self.home / "data"), *options]
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        printed = ""
        try:
            for line in process.stdout:
                printed += line
                if ready := re.search(r"ready on (\S+)", line):
                    break
            else:
                pytest.fail(f"ottla up ended: {printed}")
            console = ""
            if "--console" in options:
                while (found := re.search(r"http://\S+", printed)) is None:
                    line = process.stdout.readline()
                    assert line, printed
                    printed += line
                console = found[0]
            yield ready[1], console
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, printed + rest


@pytest.fixture(scope="module")
def installation(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Both wheels in an environment that finds the dependencies, and not the source tree, where the tests have them."""
    directory = tmp_path_factory.mktemp("installation")
    venv.create(directory / "venv", with_pip=False, symlinks=True)
    wheels = [str(wheel) for wheel in packages.glob("*.whl")]
    target = str(directory / "venv")
    run(sys.executable, "-m", "pip", "--python", target, "install", "--quiet", "--no-deps", "--no-index", *wheels)
    installed = find(directory / "venv", "lib/python3*/site-packages")
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    made = Installation(directory / "work")
    made.bin = directory / "venv" / "bin"
    return made


def test_installed_wheels_serve_a_first_record(installation: Installation) -> None:
    where = installation.run("python", "-c", "import ottla; print(ottla.__file__)").strip()
    assert Path(where).is_relative_to(installation.bin.parent)
    assert ottla.__version__ in installation.run("ottla", "--version")
    with installation.serve("--console", "0") as (bootstrap, console):
        installation.run("kafka-topics.sh", "--bootstrap-server", bootstrap, "--create", "--topic", "first")
        installation.run("ottla", "produce", "first", "--bootstrap", bootstrap, given="hello\n")
        read = installation.run("ottla", "consume", "first", "--bootstrap", bootstrap)
        assert "hello" in read
        await_text(f"{console}topics", ">first<")


def test_the_fixture_of_an_installed_wheel(installation: Installation) -> None:
    """pytest finds the plug-in by itself, as it does for those who write tests with it."""
    test = installation.home / "test_mine.py"
    test.write_text('def test_mine(ottla_broker):\n    ottla_broker.create_topic("mine")\n')
    assert "1 passed" in installation.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", test.name)


@pytest.fixture(scope="module")
def fresh(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Installation, float]:
    """The wheels as a new user installs them, with pip and its index, and how many seconds that took."""
    directory = tmp_path_factory.mktemp("fresh")
    begun = time.monotonic()
    venv.create(directory / "venv", with_pip=True, symlinks=True)
    made = Installation(directory / "work")
    made.bin = directory / "venv" / "bin"
    wheels = [str(wheel) for wheel in packages.glob("*.whl")]
    try:
        made.run("pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), *wheels)
    except AssertionError as error:
        skip_without("PyPI", str(error).splitlines()[-1])
    return made, time.monotonic() - begun


@pytest.mark.long
def test_the_base_install_needs_no_extra(fresh: tuple[Installation, float]) -> None:
    """No numba, no numpy, no Spark, and a broker that works."""
    made, _ = fresh
    listed = made.run("pip", "list").lower()
    assert not any(name in listed for name in ("numba", "numpy", "pyspark"))
    with made.serve("--console", "0") as (bootstrap, _):
        made.run("ottla", "produce", "first", "--create", "--bootstrap", bootstrap, given="hello\n")
        assert "hello" in made.run("ottla", "consume", "first", "--bootstrap", bootstrap)


@pytest.mark.long
def test_a_new_user_sees_a_record_live(fresh: tuple[Installation, float], capsys: pytest.CaptureFixture[str]) -> None:
    """From `pip install` to a record of one's own in the browser, as docs/start.md goes. It prints how long it took."""
    made, installing_s = fresh
    chromium = find_chromium()
    begun = time.monotonic()
    with made.serve("--console", "0") as (bootstrap, console):
        serving_s = time.monotonic() - begun
        made.run("ottla", "produce", "greetings", "--create", "--bootstrap", bootstrap, given="hello\n")
        with open_browser(chromium) as browser, open_page(browser) as page:
            page.goto(f"{console}topics/greetings/records")
            page.wait_for_selector("text=hello")
            page.click("button:has-text('Follow live')")
            page.wait_for_selector("text=Waiting for new records")
            made.run("ottla", "produce", "greetings", "--bootstrap", bootstrap, given="seen live\n")
            page.wait_for_selector("#records tr:has-text('seen live')")
            seen_s = time.monotonic() - begun
    with capsys.disabled():
        print(
            f"\na new user: installed after {installing_s:.0f} s, broker and console after {serving_s:.1f} s more, "
            f"own record live in the browser after {installing_s + seen_s:.0f} s"
        )


@pytest.mark.long
def test_the_container_file_builds_a_broker(tmp_path: Path) -> None:
    """With buildah, which needs no daemon. The image's own user starts the broker."""
    buildah = require_program("buildah")
    pulled = subprocess.run([buildah, "pull", "--policy", "missing", BASE_IMAGE], capture_output=True, text=True)
    if pulled.returncode != 0:
        skip_without("a container registry", f"{BASE_IMAGE} cannot be pulled")
    isolation = ("--isolation", "chroot")
    file = str(ROOT / "deploy" / "docker" / "Dockerfile")
    argument = f"BASE={BASE_IMAGE}"
    run(buildah, "bud", *isolation, "--build-arg", argument, "-f", file, "-t", "ottla-test", str(ROOT))
    container = run(buildah, "from", "ottla-test").strip()
    try:
        entry = ["ottla", "up", "--data", "/var/lib/ottla"]
        process = subprocess.Popen(
            [buildah, "run", *isolation, "--user", "ottla", container, "--", *entry, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        ready = re.search(r"ready on (\S+)", process.stdout.readline())
        assert ready is not None
        tool = shutil.which("ottla", path=str(Path(sys.executable).parent))
        assert tool is not None
        run(tool, "topic", "create", "first", "--bootstrap", ready[1], cwd=tmp_path)
        assert "first" in run(tool, "topic", "list", "--bootstrap", ready[1], cwd=tmp_path)
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    finally:
        run(buildah, "rm", container)
