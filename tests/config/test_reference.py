"""A space.yaml as the MEW reference implementation has them (D-14)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moot.config import Configuration, hash_token, load
from moot.config.configuration import McpServerConfig
from moot.errors import UsageError
from moot.protocol.patterns import read_capabilities
from tests.config.files import NO_ENVIRONMENT, written

CODER = """
    space:
      id: workshop
      name: The workshop
      description: An agent that asks before it writes
      default_participant: human
      ui_theme: dark
    participants:
      human:
        capabilities:
          - kind: "*"
      coder:
        type: local
        command: mew
        args: [agent, run, --gateway, "ws://localhost:${PORT}", --space, "${SPACE}", --token, "${TOKEN}"]
        env: {OPENAI_API_KEY: "${OPENAI_API_KEY}", MAX_ITERATIONS: 100}
        auto_start: true
        tokens: [coder-token]
        capabilities:
          - {id: talk, kind: chat}
          - kind: mcp/proposal
          - {kind: mcp/request, to: [files], payload: {method: "!tools/call"}}
          - {kind: mcp/request, payload: {method: "*/list"}}
          - {kind: mcp/request, payload: {method: tools/call, params: {name: [read_file, "/^list_/"]}}}
          - {kind: stream/open}
          - {kind: "system/*"}
      files:
        type: mcp-bridge
        tokens: [files-token]
        auto_start: true
        mcp_server: {command: npx, args: [-y, server-filesystem, ./], timeout: 3}
        bridge_config: {init_timeout: 30000}
      recorder:
        tokens: [recorder-token]
        capabilities: []
        output_log: ./logs/recorder.log
        auto_connect: true
      observer:
        output_log: /var/log/observer.log
        default_to: [coder]
        auto_connect: false
        restart_policy: on-failure
    defaults:
      capabilities:
        - kind: chat
      timeout: 3
    limits: {messages_per_second: 5}
    gateway_logging: {enabled: true}
"""


def coder(folder: Path, **environ: str) -> Configuration:
    return load(written(folder, CODER, "space.yaml"), environ=environ)


def test_a_reference_file_becomes_one_space_that_behaves_as_there(tmp_path: Path) -> None:
    configuration = coder(tmp_path)
    space = configuration.spaces["workshop"]
    assert configuration.default_space == "workshop"
    assert (space.config.name, space.title) == ("workshop", "The workshop")
    assert space.description == "An agent that asks before it writes"
    assert space.default_participant == "human"
    assert space.config.reference_compat
    assert space.config.delegation == "covered"
    assert space.config.dialects == {"mew"}
    assert space.config.limits.messages_per_second == 5
    assert list(space.config.participants) == ["human", "coder", "files", "recorder", "observer"]


def test_capabilities_are_read_as_there_and_defaults_are_for_who_has_none(tmp_path: Path) -> None:
    participants = coder(tmp_path).spaces["workshop"].config.participants
    assert len(participants["coder"].capabilities) == 7
    assert participants["coder"].capabilities[0] == read_capabilities([{"id": "talk", "kind": "chat"}])[0]
    asking = participants["coder"].capabilities[2]
    assert asking.matches("mcp/request", {"method": "tools/list"}, to=["files"])
    assert not asking.matches("mcp/request", {"method": "tools/list"}, to=["human"])
    assert participants["files"].capabilities == read_capabilities([{"kind": "chat"}])
    assert participants["recorder"].capabilities == ()


def test_tokens_are_listed_or_made_where_its_tools_look_for_them(tmp_path: Path) -> None:
    """Point --data at `.mew` and the tokens that are there go on working."""
    folder = tmp_path / ".mew" / "tokens"
    folder.mkdir(parents=True)
    (folder / "human.token").write_text("known-token")
    (folder / "human.token").chmod(0o600)
    path = written(tmp_path, CODER, "space.yaml")
    space = load(path, environ=NO_ENVIRONMENT, data=tmp_path / ".mew").spaces["workshop"]
    assert space.tokens[hash_token("known-token")].participant == "human"
    assert space.tokens[hash_token("coder-token")].participant == "coder"
    assert space.token_files == {"human": folder / "human.token", "observer": folder / "observer.token"}


@pytest.mark.parametrize("place", [".mew/tokens", "tokens"])
def test_tokens_that_the_reference_made_go_on_working(tmp_path: Path, place: str) -> None:
    """Without a word about them; only who has none gets one made here."""
    folder = tmp_path / place
    folder.mkdir(parents=True, mode=0o700)
    for name in ("human", "coder"):
        (folder / f"{name}.token").write_text(f"kept-{name}")
        (folder / f"{name}.token").chmod(0o600)
    space = coder(tmp_path).spaces["workshop"]
    for token, owner in {"kept-human": "human", "kept-coder": "coder", "coder-token": "coder"}.items():
        assert space.tokens[hash_token(token)].participant == owner
    assert space.config.participants["human"].credentials == (hash_token("kept-human"),)
    assert space.token_files["human"] == folder / "human.token"
    assert not (tmp_path / ".moot" / "tokens" / "human.token").exists()
    assert (tmp_path / ".moot" / "tokens" / "observer.token").exists()
    (folder / "human.token").chmod(0o644)
    with pytest.raises(UsageError, match="others may read the token file"):
        coder(tmp_path)


def test_default_to_can_be_by_kind(tmp_path: Path) -> None:
    text = """
        space: {id: x}
        participants:
          a: {default_to: {chat: [b]}}
          b: {default_to: [a]}
          c: {default_to: {mcp/request: [a]}}
    """
    members = load(written(tmp_path, text, "space.yaml"), environ=NO_ENVIRONMENT).spaces["x"].members
    assert [members[name].default_to for name in "abc"] == [("b",), ("a",), ()]


@pytest.mark.parametrize(
    ("id", "name"),
    [("My Project", "My-Project"), ("{{SPACE_NAME}}", "SPACE_NAME"), ("../x", "x"), ("a" * 99, "a" * 64)],
)
def test_a_free_text_id_gets_a_name_that_folders_and_addresses_can_have(
    tmp_path: Path, id: str, name: str
) -> None:
    path = written(tmp_path, json.dumps({"space": {"id": id}, "participants": {"a": {}}}), "space.yaml")
    configuration = load(path, environ=NO_ENVIRONMENT)
    assert {key: space.other_name for key, space in configuration.spaces.items()} == {name: id}


def test_an_id_without_any_letter_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = []
    for id in ("日本", "東京"):
        path = written(tmp_path, json.dumps({"space": {"id": id}, "participants": {"a": {}}}), "space.yaml")
        names += list(load(path, environ=NO_ENVIRONMENT).spaces)
    assert len(set(names)) == 2
    assert all(name.startswith("space-") for name in names)


def test_a_token_in_the_variable_that_the_reference_knows_counts_too(tmp_path: Path) -> None:
    space = coder(tmp_path, MEW_TOKEN_HUMAN="h", MEW_TOKEN_CODER="c", MEW_TOKEN_FILES="").spaces["workshop"]
    assert space.config.participants["human"].credentials == (hash_token("h"),)
    assert space.config.participants["coder"].credentials == (hash_token("coder-token"), hash_token("c"))
    assert set(space.token_files) == {"observer"}


def test_members_are_kept_as_they_stand(tmp_path: Path) -> None:
    members = coder(tmp_path, OPENAI_API_KEY="sk").spaces["workshop"].members
    assert members["coder"].args[3:] == (
        "ws://localhost:${PORT}",
        "--space",
        "${SPACE}",
        "--token",
        "${TOKEN}",
    )
    assert members["coder"].env == {"OPENAI_API_KEY": "${OPENAI_API_KEY}", "MAX_ITERATIONS": "100"}
    assert members["coder"].auto_start
    assert members["files"].mcp_server == McpServerConfig(
        command="npx", args=("-y", "server-filesystem", "./")
    )
    assert members["observer"].default_to == ("coder",)


def test_output_logs_are_files_beside_the_space_unless_they_are_not_connected(tmp_path: Path) -> None:
    space = coder(tmp_path).spaces["workshop"]
    assert space.output_logs == {"recorder": tmp_path / "logs/recorder.log"}


def test_a_file_in_the_folder_of_the_reference_counts_as_beside_it(tmp_path: Path) -> None:
    (tmp_path / ".mew").mkdir()
    configuration = load(written(tmp_path / ".mew", CODER, "space.yaml"), environ=NO_ENVIRONMENT)
    assert configuration.spaces["workshop"].output_logs == {"recorder": tmp_path / "logs/recorder.log"}
    assert configuration.gateway.data == tmp_path / ".moot"


def test_unknown_keys_are_noted_and_otherwise_ignored(tmp_path: Path) -> None:
    ignored = [note.partition(":")[0] for note in coder(tmp_path).notes if "not known here" in note]
    assert sorted(ignored) == [
        "defaults.timeout",
        "gateway_logging",
        "participants.files.bridge_config",
        "participants.files.mcp_server.timeout",
        "participants.observer.restart_policy",
        "space.ui_theme",
    ]


def test_a_capability_that_does_nothing_is_noted_but_not_stream_open(tmp_path: Path) -> None:
    """D-10: reference_compat gives stream/open back to members."""
    inert = [note for note in coder(tmp_path).notes if "does nothing" in note]
    assert len(inert) == 1
    assert "system/*" in inert[0]


def test_settings_of_ours_may_stand_at_the_top_or_under_space(tmp_path: Path) -> None:
    text = """
    space: {id: s, delegation: unrestricted, access: public}
    anonymous: [chat]
    dialects: [mew, mcpx]
    journal: strict
    reference_compat: false
    """
    space = load(written(tmp_path, text, "any-name.yml"), environ=NO_ENVIRONMENT).spaces["s"]
    assert (space.config.delegation, space.config.access, space.journal) == (
        "unrestricted",
        "public",
        "strict",
    )
    assert space.config.dialects == {"mew", "mcpx"}
    assert not space.config.reference_compat


@pytest.mark.parametrize(
    "text", ["participants: {a: }", "space: {}\nparticipants:", "defaults: {capabilities: }"]
)
def test_what_says_nothing_is_an_empty_space_called_default(tmp_path: Path, text: str) -> None:
    configuration = load(written(tmp_path, text), environ=NO_ENVIRONMENT)
    assert list(configuration.spaces) == ["default"]


def test_a_default_participant_that_is_not_there_is_noted(tmp_path: Path) -> None:
    text = "space: {default_participant: nobody}\nparticipants: {a: {tokens: [x], capabilities: [chat]}}"
    configuration = load(written(tmp_path, text), environ=NO_ENVIRONMENT)
    assert configuration.notes == ("space.default_participant: no such participant, ignored",)
    assert configuration.spaces["default"].default_participant is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("space: {id: [a]}", "space.id: must be text"),
        ("space: {id: 3}", "space.id: must be text"),
        ("space: {name: 3}", "space.name: must be text"),
        (
            "participants: {a: {capabilities: [{kind: chat, payloads: {}}]}}",
            "participants.a.capabilities[0]: ",
        ),
        ("participants: {a: {tokens: x}}", "participants.a.tokens: must be a list"),
        ("participants: {a: {capabilities: x}}", "participants.a.capabilities: must be a list"),
        ("participants: {'system:x': {}}", "participants.system:x: "),
        ("space: {}\nlimits: {x: 1}", "limits.x: unknown limit"),
        ("space: {delegation: covered}\ndelegation: covered", "space.delegation: stands at the top"),
        ("space: {delegation: free}", "space.delegation: must be one of covered, unrestricted"),
    ],
)
def test_known_keys_are_still_read_strictly(tmp_path: Path, text: str, fault: str) -> None:
    """D-13: a limit that cannot be read would widen a right."""
    with pytest.raises(UsageError) as raised:
        load(written(tmp_path, text, "space.yaml"), environ=NO_ENVIRONMENT)
    assert f"space.yaml: {fault}" in str(raised.value)
