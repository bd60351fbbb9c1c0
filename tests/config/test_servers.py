"""`mcp_servers:` and what a file says of members that are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import check, load
from moot.config.configuration import McpServerConfig, McpSignInConfig
from moot.config.loader import SERVER_RIGHTS
from moot.errors import UsageError
from moot.protocol.patterns import read_capabilities
from tests.config.files import NO_ENVIRONMENT, lab, written


def test_a_server_is_a_participant_with_the_rights_of_a_tool_host(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        participants: {you: ["*"]}
        mcp_servers:
          files:
            {command: npx, args: [-y, server, "${FOLDER}"], env: {K: "${K}", N: 1}, cwd: sub, pin: false}
          docs:
            {url: "http://x/mcp", headers: {Authorization: "Bearer ${K}"}, transport: http, auto_start: false}
        """,
    )
    assert list(space.config.participants) == ["you", "files", "docs"]
    assert space.config.participants["files"].capabilities == SERVER_RIGHTS
    assert space.token_files["files"] == tmp_path / ".moot/tokens/files.token"
    files = space.members["files"]
    assert files.mcp_server == McpServerConfig(
        command="npx",
        args=("-y", "server", "${FOLDER}"),
        env={"K": "${K}", "N": "1"},
        cwd="sub",
        pin=False,
    )
    assert (files.auto_start, space.members["docs"].auto_start) == (True, False)
    docs = space.members["docs"].mcp_server
    assert docs is not None
    assert (docs.url, docs.headers, docs.transport, docs.pin) == (
        "http://x/mcp",
        {"Authorization": "Bearer ${K}"},
        "http",
        True,
    )


def test_in_a_cluster_a_server_serves_once_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    """Two bridges of one name would carry out each call twice."""
    text = """
        participants:
          you: ["*"]
          a: ["*"]
          b: {capabilities: ["*"], mcp_server: {command: x}}
          c: {capabilities: ["*"], exclusive: false}
        mcp_servers:
          a: {command: x}
          c: {command: x}
          d: {command: x}
          e: {command: x, exclusive: false}
        """
    environ = {"MOOT_GATEWAY__CLUSTER": "{servers: ['nats://127.0.0.1']}"}
    for given, expected in ((environ, {"a", "b", "d"}), ({}, set())):
        space = lab(tmp_path, text, **given)
        assert {name for name, one in space.config.participants.items() if one.exclusive} == expected


def test_its_rights_and_tokens_can_be_said_or_stand_under_participants(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        participants: {a: {capabilities: [{kind: chat}], default_to: [b]}}
        mcp_servers:
          a: {command: x}
          b: {command: y, profile: response-only, tokens: [t]}
        """,
    )
    assert space.config.participants["a"].capabilities == read_capabilities([{"kind": "chat"}])
    assert space.members["a"].default_to == ("b",)
    assert space.members["a"].mcp_server == McpServerConfig(command="x")
    assert len(space.config.participants["b"].capabilities) == 2
    assert "b" not in space.token_files


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("mcp_servers: {a: {}}", "spaces.lab.mcp_servers.a: has to hold command or url, and not both"),
        ("mcp_servers: {a: {command: x, url: y}}", "mcp_servers.a: has to hold command or url"),
        (
            "mcp_servers: {a: {comand: x}}",
            "mcp_servers.a.comand: unknown key; did you mean command?",
        ),
        ("mcp_servers: {a: {url: x, args: [y]}}", "mcp_servers.a.args: has a meaning only with command"),
        ("mcp_servers: {a: {command: x, headers: {}}}", "a.headers: has a meaning only with url"),
        ("mcp_servers: {a: {command: x, transport: carrier}}", "a.transport: must be one of auto, http, sse"),
        ("mcp_servers: {a: {command: x, auto_start: 1}}", "mcp_servers.a.auto_start: must be true or false"),
        ("mcp_servers: {a: {command: x, pin: maybe}}", "mcp_servers.a.pin: must be true or false, not text"),
        ("mcp_servers: {gateway: {command: x}}", "spaces.lab.mcp_servers.gateway: 'gateway' is reserved"),
        ("mcp_servers: [x]", "spaces.lab.mcp_servers: must be a mapping"),
        (
            "participants: {a: {command: x}}\nmcp_servers: {a: {command: x}}",
            "spaces.lab.mcp_servers.a: the participant of that name says itself how it is started",
        ),
        (
            "participants: {a: ['*']}\nmcp_servers: {a: {command: x, profile: full}}",
            "spaces.lab.mcp_servers.a.profile: unknown key",
        ),
        ("participants: {a: {tokens: [t]}}\nmcp_servers: {b: {command: x, tokens: [t]}}", "the same token"),
        (
            "participants: {a: {command: x, restart: maybe}}",
            "restart: must be one of always, never, on-failure",
        ),
    ],
)
def test_mistakes_are_named_by_their_path(tmp_path: Path, section: str, words: str) -> None:
    with pytest.raises(UsageError) as fault:
        lab(tmp_path, section)
    assert words in str(fault.value)


def test_members_start_by_themselves_here_and_only_when_told_in_a_reference_file(tmp_path: Path) -> None:
    """D-14: the reference implementation starts nothing unasked."""
    assert lab(tmp_path, "participants: {a: {command: x}}").members["a"].auto_start
    assert not lab(tmp_path, "participants: {a: {command: x, auto_start: false}}").members["a"].auto_start
    text = (
        "participants: {a: {command: x}, b: {command: x, auto_start: true}}\nmcp_servers: {c: {command: x}}"
    )
    members = load(written(tmp_path, text, "space.yaml"), environ=NO_ENVIRONMENT).spaces["default"].members
    assert [members[name].auto_start for name in "abc"] == [False, True, True]


def test_a_check_says_what_would_be_started_and_shows_no_argument(tmp_path: Path) -> None:
    text = """
        spaces:
          lab:
            participants:
              you: ["*"]
              agent: {profile: initial, command: python3, args: [hush], auto_start: false}
            mcp_servers: {files: {command: npx, args: [hush]}, docs: {url: "http://hush"}}
    """
    lines = check(written(tmp_path, text), environ=NO_ENVIRONMENT)
    output = "\n".join(lines)
    assert "runs python3 (only when asked for)" in output
    assert "bridges npx (by moot up)" in output
    assert "bridges a URL (by moot up)" in output
    assert "hush" not in output


def test_a_server_says_how_to_sign_in(tmp_path: Path) -> None:
    space = lab(
        tmp_path,
        """
        participants: {you: ["*"]}
        mcp_servers:
          docs:
            url: "https://x/mcp"
            oauth: {client_id: c, client_secret: "${S}", grant: client_credentials, scopes: [a, b], issuer: "https://i"}
        """,
    )
    docs = space.members["docs"].mcp_server
    assert docs is not None
    assert docs.oauth == McpSignInConfig(
        client_id="c",
        client_secret="${S}",
        grant="client_credentials",
        scopes=("a", "b"),
        issuer="https://i",
    )
    assert "${S}" not in repr(docs.oauth)


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("{command: x, oauth: {}}", "oauth: has a meaning only with url"),
        ("{command: x, credentials: requester}", "credentials: has a meaning only with url"),
        ('{url: "https://x", credentials: everybody}', "credentials"),
        ('{url: "https://x", oauth: {grant: client_credentials}}', "needs client_id and client_secret"),
        ('{url: "https://x", oauth: {grant: token_exchange}}', "needs client_id and issuer"),
        ('{url: "https://x", oauth: {client_id: c, client_secret: hush}}', "name a variable"),
        ('{url: "https://x", oauth: {redirect_port: 70000}}', "has to be a port"),
        ('{url: "https://x", oauth: {grant: password}}', "grant"),
        ('{url: "https://x", headers: {authorization: x}, oauth: {}}', "beside the header Authorization"),
    ],
)
def test_a_wrong_way_to_sign_in_is_explained(tmp_path: Path, server: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        lab(tmp_path, f"participants: {{you: ['*']}}\nmcp_servers: {{docs: {server}}}")
    assert "hush" not in str(refused.value)
