"""As whom an agent or a bridge joins: a participant of the space in this folder, or the owner of a token."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from moot.cli import main
from moot.cli.options.member_options import (
    add_member_options,
    digest_of_member,
    member_file,
    member_settings_of,
)
from moot.errors import UsageError
from tests.rows import for_each_row

CONFIG = """\
gateway: {port: 8123}
spaces:
  lab:
    default_participant: you
    participants:
      you: {capabilities: ["*"], tokens: [t-you]}
      weather: {capabilities: [chat], tokens: [t-weather]}
"""


@pytest.fixture
def space_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "moot.yaml").write_text(CONFIG)
    token = tmp_path / "other.token"
    token.write_text("t-other\n")
    token.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_member_options(parser)
    return parser.parse_args(arguments)


@pytest.mark.usefixtures("space_folder")
def test_a_participant_of_the_space_in_the_folder_joins_by_its_name() -> None:
    found = member_settings_of(parse("--as", "weather"))
    assert (found.url, found.space, found.token.reveal()) == ("http://127.0.0.1:8123", "lab", "t-weather")


def test_a_token_file_is_used_for_the_gateway_named_or_for_that_of_the_folder(space_folder: Path) -> None:
    file = str(space_folder / "other.token")
    answer = member_settings_of(parse("--gateway", "http://h:1", "--token-file", file))
    assert (answer.url, answer.space, answer.token.reveal(), answer.name) == (
        "http://h:1",
        "",
        "t-other",
        "other",
    )
    here = member_settings_of(parse("--token-file", file))
    assert (here.url, here.space, here.token.reveal()) == ("http://127.0.0.1:8123", "lab", "t-other")


def test_nobody_else_is_taken_not_the_person_of_the_folder_nor_of_the_environment(
    space_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent that joined with the rights of a person could approve what it asks for."""
    monkeypatch.setenv("MOOT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("MOOT_TOKEN_FILE", str(space_folder / "other.token"))
    monkeypatch.setenv("MOOT_SPACE", "elsewhere")
    agent = ("agent", "--base-url", "http://h/v1", "--model", "m")
    for command in (
        ("a2a", "join", "http://127.0.0.1:9"),
        ("a2a", "serve", "--publish", "x"),
        ("acp", "--", "a"),
        ("bridge", "--", "a"),
        agent,
    ):
        assert main([*command]) == 2
        assert "say as whom it joins: --as NAME" in capsys.readouterr().err
    assert member_settings_of(parse("--as", "weather")).url == "http://127.0.0.1:8123"
    answer = parse("--gateway", "http://h:1", "--token-file", "other.token")
    assert member_settings_of(answer).space == ""


@pytest.mark.usefixtures("space_folder")
@for_each_row(
    "arguments, why",
    [
        (("--as", "weather", "--token-file", "other.token"), "exclude each other"),
        (("--as", "weather", "--gateway", "http://h:1"), "leave --gateway out"),
        (("--as", "nobody"), "no participant nobody"),
        (("--as", "weather", "--config", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        member_settings_of(parse(*arguments))


def test_what_a_member_keeps_is_found_again_by_its_name_or_its_token_file(space_folder: Path) -> None:
    def kept(*arguments: str) -> str:
        options = parse(*arguments)
        return digest_of_member(options, member_settings_of(options), "join")

    by_name, by_file = kept("--as", "weather"), kept("--gateway", "http://h:1", "--token-file", "other.token")
    (space_folder / "moot.yaml").write_text(CONFIG.replace("8123", "8124"))
    assert kept("--as", "weather") == by_name
    assert kept("--as", "you") != by_name
    assert kept("--gateway", "http://h:2", "--token-file", "other.token") != by_file
    assert kept("--gateway", "http://h:1/", "--token-file", "other.token") == by_file
    assert member_file(parse("--as", "weather")) == space_folder / "moot.yaml"


@pytest.mark.usefixtures("space_folder")
@pytest.mark.parametrize("command", ["member tokens", "member sign-out ana", "passkeys link ana"])
def test_what_only_administrators_may_says_where_their_token_is_from(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    assert "It has one with `admin_tokens: {root: {}}`" in capsys.readouterr().err


@pytest.mark.usefixtures("space_folder")
def test_a_coding_agent_does_not_work_where_its_configuration_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acp", "--as", "weather", "--", "some-agent"]) == 2
    assert "could read tokens there" in capsys.readouterr().err
