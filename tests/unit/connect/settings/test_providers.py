"""References to config providers are resolved within their bounds, and what cannot be resolved is an error."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ottla.connect.errors import BadConfig
from ottla.connect.settings.providers import Providers

PACKAGE = "org.apache.kafka.common.config.provider."


def make_worker(**params: str) -> dict[str, str]:
    worker = {"config.providers": "file, directory,env"}
    for name, kind in (("file", "File"), ("directory", "Directory"), ("env", "EnvVar")):
        worker[f"config.providers.{name}.class"] = f"{PACKAGE}{kind}ConfigProvider"
    for name, value in params.items():
        provider, _, parameter = name.partition("_")
        worker[f"config.providers.{provider}.param.{parameter.replace('_', '.')}"] = value
    return worker


def find_error(worker: Mapping[str, str], text: str) -> str:
    resolved = Providers(worker).resolve({"x": text, "y": "7"})
    assert resolved.config["y"] == "7"
    return resolved.errors["x"].removeprefix(f"Invalid value {text} for configuration x: ")


def test_each_provider_gives_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.properties").write_text("user=ann\npass\\ word : s3cr\\u0065t\n")
    (tmp_path / "token").write_text("t0ken\n")
    monkeypatch.setenv("OTTLA_TEST_SECRET", "deep")
    resolved = Providers(make_worker()).resolve(
        {
            "file": f"${{file:{tmp_path}/a.properties:user}}:${{file:{tmp_path}/a.properties:pass word}}",
            "directory": f"${{directory:{tmp_path}:token}}",
            "env": "${env:OTTLA_TEST_SECRET}",
            "plain": "${topic} costs $5",
            "foreign": "${vault:a:b}",
        }
    )
    assert resolved.config == {
        "file": "ann:s3cret",
        "directory": "t0ken\n",
        "env": "deep",
        "plain": "${topic} costs $5",
        "foreign": "${vault:a:b}",
    }
    assert resolved.secrets == {"ann", "s3cret", "t0ken\n", "deep"}
    assert not resolved.errors


def test_without_providers_a_text_stays_as_it_is() -> None:
    assert Providers({}).resolve_or_fail({"x": "${env:HOME}"}) == ({"x": "${env:HOME}"}, frozenset())


def test_what_cannot_be_resolved_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("a=1")
    worker = make_worker(env_allowlist_pattern="A.*")
    assert find_error(worker, "${file:/nope:a}") == "Could not read properties from file /nope"
    assert find_error(worker, f"${{file:{tmp_path}/a.properties:b}}") == f"file {tmp_path}/a.properties has no key b"
    assert find_error(worker, f"${{directory:{tmp_path}/x:b}}") == f"The path {tmp_path}/x is not a directory"
    assert find_error(worker, f"${{directory:{tmp_path}:../a}}") == f"../a is not the name of a file in {tmp_path}"
    assert "there is no environment variable HOME" in find_error(worker, "${env:HOME}")
    assert "Path is not supported" in find_error(worker, "${env:a:HOME}")
    with pytest.raises(BadConfig, match="Could not read properties from file /nope"):
        Providers(worker).resolve_or_fail({"x": "${file:/nope:a}"})


def test_nothing_outside_the_allowed_paths_is_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "a").write_text("k=secret")
    (inside / "link").symlink_to(outside / "a")
    worker = make_worker(file_allowed_paths=str(inside), directory_allowed_paths=str(inside))
    for text in (f"{outside}/a", f"{inside}/../out/a", f"{inside}/link"):
        assert find_error(worker, f"${{file:{text}:k}}") == f"The path {text} is not allowed to be accessed"
    assert "is not allowed" in find_error(worker, f"${{directory:{outside}:a}}")
    assert "is not allowed" in find_error(worker, f"${{directory:{inside}:link}}")


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        ({"config.providers": "a"}, "there is no config.providers.a.class"),
        ({"config.providers": "a", "config.providers.a.class": "x.Vault"}, "there is no such config provider"),
        (make_worker(file_allowed_paths="etc"), "Path etc is not absolute"),
        (make_worker(file_allowed_paths="/does/not/exist"), "Path /does/not/exist does not exist"),
        (make_worker(env_allowlist_pattern="("), "allowlist.pattern"),
    ],
)
def test_a_worker_with_a_wrong_provider_does_not_start(worker: dict[str, str], reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        Providers(worker)
