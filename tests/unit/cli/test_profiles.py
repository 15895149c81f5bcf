"""Profiles and the other places that settings of clients come from: who wins, who can read them, what is shown."""

import argparse
import stat
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.cli.client_settings import read_client_settings
from ottla.cli.command_error import CommandError
from ottla.config.properties import format_properties, read_properties

SECRET = "hunter2 =\\ 'quoted'"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("OTTLA_PROFILE", "OTTLA_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "ottla"


def create(*arguments: str) -> int:
    login = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice")
    return main(["profile", "create", *arguments, *login, "-X", f"sasl.password={SECRET}"])


def options(**given: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"bootstrap": None, "client_settings": [], "command_config": None, "profile": None, **given}
    )


def test_a_profile_is_kept_for_its_owner_and_shown_without_secrets(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create("prod", "--bootstrap", "one:9093", "--use") == 0
    file = home / "profiles" / "prod.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert read_client_settings(options()).settings["sasl.password"] == SECRET
    capsys.readouterr()
    for arguments in (["show"], ["show", "prod", "--format", "json"], ["list"]):
        assert main(["profile", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown and "(secret)" in shown and "one:9093" in shown and "alice" in shown
    assert main(["profile", "show", "--secrets"]) == 0
    assert SECRET in capsys.readouterr().out
    assert main(["profile", "delete", "prod"]) == 0
    assert not file.exists()
    assert read_client_settings(options()).settings == {"bootstrap.servers": "localhost:9092"}


def test_the_strongest_setting_wins(home: Path, tmp_path: Path) -> None:
    assert create("used", "-b", "used:1", "--use") == 0
    assert create("other", "-b", "other:1", "-X", "client.id=from-profile") == 0
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers = file:1\nclient.id=from-file\n")
    nothing = {"XDG_CONFIG_HOME": str(tmp_path)}

    def find(environment: dict[str, str], **given: object) -> str:
        return read_client_settings(options(**given), {**nothing, **environment}).settings["bootstrap.servers"]

    assert find({"XDG_CONFIG_HOME": "/nowhere"}) == "localhost:9092"
    assert find({}) == "used:1"
    assert find({}, bootstrap="one, two:2,") == "one:9092, two:2,"
    assert find({"OTTLA_PROFILE": "other"}) == "other:1"
    variables = {"OTTLA_BOOTSTRAP": "variable:1", "OTTLA_CLIENT_CLIENT_ID": "from-variable"}
    assert find(variables) == "variable:1"
    assert find(variables, profile="other") == "other:1"
    assert find(variables, profile="other", command_config=str(file)) == "file:1"
    assert find(variables, command_config=str(file), bootstrap="option:1") == "option:1"
    last = read_client_settings(
        options(command_config=str(file), bootstrap="option:1", client_settings=["client.id=x"]), variables
    )
    assert last.settings["client.id"] == "x"
    assert "client.id" not in last.optional  # librdkafka's complaint about it would be reported
    assert read_client_settings(options(), variables).settings["client.id"] == "from-variable"


def test_what_is_wrong_is_said_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert create("prod") == 0
    capsys.readouterr()
    for arguments, said in (
        (["create", "prod"], "profile 'prod' exists; --force replaces it"),
        (["create", "../prod"], "'../prod' cannot name a profile"),
        (["create", "x", "-X", "security.protocol=SSH"], "security.protocol: 'ssh' is unknown"),
        (["use", "prdo"], "there is no profile 'prdo'; did you mean 'prod'?"),
        (["show"], "no profile is in use"),
    ):
        assert main(["profile", *arguments]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(CommandError, match="No such file"):
        read_client_settings(options(command_config=str(tmp_path / "missing")))


def test_a_password_can_be_given_without_the_list_of_processes(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    login = ["-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice"]
    assert main(["profile", "create", "prod", "--password-stdin", "--use", *login]) == 0
    assert read_client_settings(options()).settings["sasl.password"] == SECRET


def test_properties_are_read_back_as_they_were_written() -> None:
    for value in (
        "",
        " leading",
        "back\\slash",
        "two\nlines\r\ttabs\f",
        "#no comment",
        "a=b:c",
        "käse \U0001f9c0",
        SECRET,
    ):
        assert read_properties(format_properties({"a key:=": value, "next": "x"})) == {"a key:=": value, "next": "x"}
