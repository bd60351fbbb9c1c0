"""Where a person's command finds its gateway, and as whom it comes in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from moot.config import hash_token, load
from moot.config.connect_settings import (
    CliOverrides,
    ConnectSettings,
    admin_settings,
    connect_settings,
    find_config,
    token_of,
)
from moot.config.secrets.secret import Secret
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, written

LAB = """
    gateway: {port: 8123}
    spaces:
      lab:
        participants:
          alice: {capabilities: ["*"], tokens: [alice-token], default_to: [agent]}
          agent: {profile: initial, command: python3}
          log: {output_log: all.log}
        mcp_servers:
          files: {command: x}
"""
TWO = """
    spaces:
      a: {participants: {alice: ["*"]}}
      b: {participants: {alice: ["*"], bob: ["*"]}, default_participant: bob}
"""


def found(folder: Path, asked: CliOverrides | None = None, **environ: str) -> ConnectSettings:
    return connect_settings(asked or CliOverrides(), environ=environ, folder=folder)


def test_in_the_folder_of_a_space_nothing_has_to_be_said(tmp_path: Path) -> None:
    """alice is the only one whom nobody starts and who is no file."""
    written(tmp_path, LAB)
    assert found(tmp_path) == ConnectSettings(
        url="http://127.0.0.1:8123",
        space="lab",
        token=Secret("alice-token"),
        participant="alice",
        name="alice",
        default_to=("agent",),
    )


def test_nothing_is_written_on_the_way(tmp_path: Path) -> None:
    written(tmp_path, LAB)
    found(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["moot.yaml"]


def test_the_address_is_that_of_the_moot_up_that_runs(tmp_path: Path) -> None:
    written(tmp_path, LAB)
    run = tmp_path / ".moot" / "run" / "up.json"
    run.parent.mkdir(parents=True)
    run.write_text(json.dumps({"url": "http://127.0.0.1:9999", "pid": os.getpid()}))
    assert found(tmp_path).url == "http://127.0.0.1:9999"
    # One that ended without a word does not count, nor does nonsense.
    for left in ('{"url": "http://x", "pid": 2147483646}', "[]", "{", '{"pid": 1}'):
        run.write_text(left)
        assert found(tmp_path).url == "http://127.0.0.1:8123"


def test_a_wildcard_is_reached_by_loopback_and_any_port_has_to_be_said(tmp_path: Path) -> None:
    written(tmp_path, LAB.replace("port: 8123", "host: '::'"))
    assert found(tmp_path).url == "http://127.0.0.1:8080"
    written(tmp_path, LAB.replace("8123", "0"))
    with pytest.raises(UsageError, match="takes any free port"):
        found(tmp_path)


def test_which_space_and_whom_can_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    load(path, environ=NO_ENVIRONMENT)  # makes the tokens
    with pytest.raises(UsageError, match="--space NAME is missing: there is a, b"):
        found(tmp_path)
    assert found(tmp_path, CliOverrides(space="a")).participant == "alice"
    assert found(tmp_path, CliOverrides(space="b")).participant == "bob"
    assert found(tmp_path, CliOverrides(space="b", name="alice")).participant == "alice"
    assert found(tmp_path, MOOT_SPACE="b").participant == "bob"
    assert found(Path("/"), CliOverrides(space="a", config=path)).space == "a"
    with pytest.raises(UsageError, match="no space c: there is a, b"):
        found(tmp_path, CliOverrides(space="c"))


def test_a_space_that_was_made_at_run_time_is_known_by_its_model(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    data = load(path, environ=NO_ENVIRONMENT).gateway.data
    for name, model in (("garden", "b"), ("orphan", "gone")):
        (data / "spaces" / name).mkdir(parents=True)
        (data / "spaces" / name / "like").write_text(model)
    settings = found(tmp_path, CliOverrides(space="garden"))
    assert (settings.space, settings.participant) == ("garden", "bob")
    for name in ("orphan", "../garden"):
        with pytest.raises(UsageError, match=f"no space {name}: there is a, b"):
            found(tmp_path, CliOverrides(space=name))


def test_who_is_not_clear_has_to_be_said(tmp_path: Path) -> None:
    written(tmp_path, "spaces: {lab: {participants: {a: ['*'], b: ['*']}}}")
    with pytest.raises(UsageError, match=r"--as NAME is missing.*there is a, b"):
        found(tmp_path)


def test_a_token_that_is_not_made_yet_says_so(tmp_path: Path) -> None:
    written(tmp_path, "spaces: {lab: {participants: {a: ['*']}}}")
    with pytest.raises(UsageError, match='No token for "a" yet: it is made when the gateway starts'):
        found(tmp_path)


def test_a_token_that_carries_less_is_not_taken_for_the_participants_own(tmp_path: Path) -> None:
    text = "spaces: {lab: {participants: {a: {capabilities: ['*'], tokens: [{token: t, profile: initial}]}}}}"
    written(tmp_path, text)
    with pytest.raises(UsageError, match="a has no token with all of its rights: give one with --token-file"):
        found(tmp_path)


def test_a_token_that_is_never_made_is_not_promised(tmp_path: Path) -> None:
    written(tmp_path, "spaces: {lab: {participants: {a: {capabilities: ['*'], tokens: []}}}}")
    with pytest.raises(UsageError, match=r"a has no token, and none is made where tokens: is empty"):
        found(tmp_path)


SECRETS = """
    gateway:
      port: 8123
      admin_tokens: {root: {token_env: MOOT_ADMIN_TOKEN}}
      smtp: {host: mail.example, user: u, password_env: SMTP_PASSWORD, from: a@mail.example}
      oidc:
        issuer: https://id.example
        audience: moot
        people: [{match: {sub: "*"}, participant: "{sub}", profile: full, spaces: [lab]}]
        introspection: {client_id: moot, client_secret_env: OIDC_SECRET}
    spaces:
      lab:
        default_participant: you
        participants:
          you: {capabilities: ["*"], token_env: YOUR_TOKEN}
          agent:
            profile: initial
            token_env: AGENT_TOKEN
            tokens: [{token_env: READER_TOKEN, profile: initial}]
"""
OTHERS = {"MOOT_ADMIN_TOKEN": "r1", "SMTP_PASSWORD": "p1", "OIDC_SECRET": "s1", "YOUR_TOKEN": "y1"}
OWN = {"AGENT_TOKEN": "a1", "READER_TOKEN": "a2"}


def test_a_member_needs_no_secret_but_its_own(tmp_path: Path) -> None:
    """Else people would give an agent's shell the token of a person."""
    written(tmp_path, SECRETS)
    settings = found(tmp_path, CliOverrides(name="agent"), AGENT_TOKEN="a1")
    assert (settings.participant, settings.token.reveal()) == ("agent", "a1")
    assert settings.url == "http://127.0.0.1:8123"
    # One that is missing and one's own is named, the others are not.
    for missing, name in (("AGENT_TOKEN", "agent"), ("YOUR_TOKEN", "you")):
        environ = {key: value for key, value in (OTHERS | OWN).items() if key != missing}
        with pytest.raises(
            UsageError, match=f"{name}.token_env: the environment variable {missing} is not set"
        ):
            found(tmp_path, CliOverrides(name=name), **environ)


@pytest.mark.parametrize("missing", [*OTHERS, *OWN])
def test_a_gateway_needs_all_of_its_secrets(tmp_path: Path, missing: str) -> None:
    path = written(tmp_path, SECRETS)
    load(path, environ=OTHERS | OWN)
    environ = {key: value for key, value in (OTHERS | OWN).items() if key != missing}
    for dry in (False, True):
        with pytest.raises(UsageError, match=f"variable {missing} is not set or empty"):
            load(path, environ=environ, dry=dry)


def test_what_is_said_outright_wins_over_the_environment(tmp_path: Path) -> None:
    token, other = tmp_path / "t", tmp_path / "u"
    token.write_text("one\n")
    token.chmod(0o600)
    other.write_text("two")
    other.chmod(0o600)
    environ = {"MOOT_URL": "http://e", "MOOT_SPACE": "s", "MOOT_TOKEN_FILE": str(token), "MOOT_TOKEN": "x"}
    assert found(tmp_path, CliOverrides(), **environ) == ConnectSettings(
        url="http://e", space="s", token=Secret("one"), token_file=token
    )
    del environ["MOOT_TOKEN_FILE"]
    assert found(tmp_path, CliOverrides(), **environ).token == Secret("x")
    asked = CliOverrides(gateway="http://said", space="o", token_file=other)
    assert found(tmp_path, asked, **environ) == ConnectSettings(
        url="http://said", space="o", token=Secret("two"), token_file=other
    )


def test_a_configurations_token_goes_to_no_other_gateway(tmp_path: Path) -> None:
    written(tmp_path, LAB)
    with pytest.raises(UsageError, match="--gateway needs --token-file"):
        found(tmp_path, CliOverrides(gateway="http://elsewhere"))
    assert found(tmp_path, MOOT_URL="http://elsewhere").url == "http://127.0.0.1:8123"


def test_whose_token_it_is_cannot_be_said_twice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        found(tmp_path, CliOverrides(name="a", token_file=tmp_path / "t"))


def test_without_a_space_the_way_to_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`moot init` makes one"):
        found(tmp_path)


def test_configurations_are_looked_for_in_order(tmp_path: Path) -> None:
    assert find_config(tmp_path) is None
    (tmp_path / ".mew").mkdir()
    for name in (".mew/space.yaml", "space.yaml", "moot.yaml"):
        (tmp_path / name).write_text("x")
        assert find_config(tmp_path) == tmp_path / name


def test_secrets_are_handed_only_to_who_asks(tmp_path: Path) -> None:
    path = written(tmp_path, LAB)
    secrets: dict[str, Secret] = {}
    settings = load(path, environ=NO_ENVIRONMENT, secrets=secrets).spaces["lab"]
    assert token_of(settings, "alice", secrets) == Secret("alice-token")
    made = (tmp_path / ".moot/tokens/agent.token").read_text().strip()
    assert token_of(settings, "agent", secrets) == Secret(made)
    assert token_of(settings, "agent", {}) is None
    assert set(secrets) == set(settings.tokens)
    assert secrets[hash_token(made)].reveal() == made
    assert made not in repr(secrets)


def test_an_administrator_goes_where_the_environment_says(tmp_path: Path) -> None:
    """The token was named outright: it is nothing of this folder, unless its configuration was named, too."""
    path = written(tmp_path, LAB)

    def url(asked: CliOverrides, **environ: str) -> str:
        return admin_settings(asked, Secret("root"), environ=environ, folder=tmp_path).url

    there, here = "https://prod.example", "http://127.0.0.1:8123"
    assert url(CliOverrides(), MOOT_URL=there) == there
    assert url(CliOverrides()) == here
    assert url(CliOverrides(config=path), MOOT_URL=there) == here
    assert url(CliOverrides(gateway="https://other.example"), MOOT_URL=there) == "https://other.example"
