"""`mcp_sources` and `xprotocol_sources`: commands, credentials, capabilities, and two ways to an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moot.config.secrets.secret import Secret
from moot.mcp.upstream import HttpServer, StdioServer
from moot.xprotocol.adapter.config.source_settings import ApiKeyAuth, BearerAuth, CertificateAuth, McpSource
from tests.xprotocol.adapter.test_settings import problems_of, settings_of
from tests.xprotocol.people import ALICE

STDIO: dict[str, Any] = {
    "name": "one",
    "transport": "stdio",
    "command": "server",
    "xprotocol_namespace": "com.acme.one",
}
REMOTE: dict[str, Any] = {
    "name": "far",
    "transport": "sse",
    "url": "https://far.example.org/mcp",
    "xprotocol_namespace": "com.acme.far",
}
SECRET = "s3cret-value-of-a-token"


def source(folder: Path, entry: dict[str, Any], environ: dict[str, str] | None = None) -> McpSource:
    (found,) = settings_of(folder, environ, mcp_sources=[entry]).mcp_sources
    return found


def complaint(folder: Path, entry: dict[str, Any], environ: dict[str, str] | None = None) -> str:
    (problem,) = problems_of(folder, environ, mcp_sources=[entry])
    assert SECRET not in problem
    return problem


@pytest.mark.requirement("XP-3.1-11", "XP-3.1-12")
def test_a_command_is_split_as_a_shell_would_and_no_shell_sees_it(tmp_path: Path) -> None:
    """D-72: nothing in it is expanded, run or piped."""
    entry = STDIO | {"command": "run 'one word' $HOME; rm -rf / | cat", "args": ["*.txt", "two words"]}
    found = source(tmp_path, entry)
    assert found.argv == (
        "run", "one word", "$HOME;", "rm", "-rf", "/", "|", "cat", "*.txt", "two words",
    )  # fmt: skip
    server = found.server({"PATH": "/usr/bin"})
    assert isinstance(server, StdioServer)
    assert server.command.argv == found.argv
    assert "command: cannot be split" in complaint(tmp_path, STDIO | {"command": "run 'unclosed"})
    assert "command: is empty" in complaint(tmp_path, STDIO | {"command": "  "})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (STDIO | {"command": None}, "mcp_sources[0].command"),
        (STDIO | {"url": "https://x.example"}, "mcp_sources[0].url: cannot be used with transport stdio"),
        (REMOTE | {"command": "x"}, "mcp_sources[0].command: cannot be used with transport sse"),
        (REMOTE | {"transport": "http", "env": {}}, "mcp_sources[0].env: cannot be used with transport http"),
        (
            REMOTE | {"transport": "carrier-pigeon"},
            "mcp_sources[0].transport: must be one of http, sse, stdio",
        ),
        (REMOTE | {"url": "ftp://x.example"}, "mcp_sources[0].url: must begin with http"),
        (
            REMOTE | {"url": f"https://me:{SECRET}@x.example"},
            "mcp_sources[0].url: contains a user or pass",
        ),
        (STDIO | {"name": "a b"}, "mcp_sources[0].name"),
        (STDIO | {"xprotocol_namespace": "xp.key"}, "mcp_sources[0].xprotocol_namespace"),
        (STDIO | {"env": {"N": 1}}, "mcp_sources[0].env.N: must be text"),
        (STDIO | {"comand": "x"}, "mcp_sources[0].comand: unknown key; did you mean command?"),
        (
            STDIO | {"rate_limit": {"per_hour": 3, "requests_per_minute": 1}},
            "mcp_sources[0].rate_limit.per_hour",
        ),
        (STDIO | {"rate_limit": {"requests_per_minute": 0}}, "mcp_sources[0].rate_limit.requests_per_minute"),
        (STDIO | {"expose": ["tools", "secrets"]}, "mcp_sources[0].expose"),
        (STDIO | {"description_quality_floor": 2}, "mcp_sources[0].description_quality_floor"),
        (
            STDIO | {"schema_overrides": {"t": {"semantic": {"use_wen": "x"}}}},
            "mcp_sources[0].schema_overrides.t.semantic.use_wen: unknown key; did you mean use_when?",
        ),
        ({"name": "x"}, "mcp_sources[0].xprotocol_namespace: is missing"),
    ],
)
def test_what_cannot_be_is_named_by_its_path(tmp_path: Path, entry: dict[str, Any], words: str) -> None:
    problems = problems_of(tmp_path, mcp_sources=[entry])
    assert problems[0].startswith(words)
    assert not any(SECRET in problem for problem in problems)


@pytest.mark.requirement("XP-3.1-9")
def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, mcp_sources=[STDIO, REMOTE, STDIO])
    assert (
        problem
        == "mcp_sources[2].name: is also the name of mcp_sources[0]; names must be unique (source one)"
    )
    endpoint = {"name": "e", "endpoint": "xp://e.example"}
    (problem,) = problems_of(tmp_path, xprotocol_sources=[endpoint, endpoint])
    assert problem.startswith("xprotocol_sources[1].name")


# Credentials


def test_a_bearer_token_comes_from_the_environment_and_goes_into_a_header(tmp_path: Path) -> None:
    entry = REMOTE | {"auth": {"type": "bearer", "token_env": "FAR_TOKEN"}}
    found = source(tmp_path, entry, {"FAR_TOKEN": SECRET})
    assert found.auth == BearerAuth(token=Secret(SECRET))
    server = found.server({})
    assert isinstance(server, HttpServer)
    assert server.headers == {"Authorization": f"Bearer {SECRET}"}
    assert server.transport == "auto"
    assert SECRET not in repr(found) + repr(server) + repr(found.auth)


def test_an_api_key_has_a_header_of_its_own(tmp_path: Path) -> None:
    entry = REMOTE | {"transport": "http", "auth": {"type": "api_key", "header": "X-Far", "token_env": "FAR"}}
    found = source(tmp_path, entry, {"FAR": SECRET})
    assert found.auth == ApiKeyAuth(key=Secret(SECRET), header="X-Far")
    server = found.server({})
    assert isinstance(server, HttpServer)
    assert (server.headers, server.transport) == ({"X-Far": SECRET}, "http")
    entry = REMOTE | {"auth": {"type": "api_key", "token_env": "FAR"}}
    assert source(tmp_path, entry, {"FAR": SECRET}).auth == ApiKeyAuth(key=Secret(SECRET), header="X-API-Key")
    bad = REMOTE | {"auth": {"type": "api_key", "header": "a b", "token_env": "FAR"}}
    assert "auth.header" in complaint(tmp_path, bad, {"FAR": SECRET})


def test_a_client_certificate_is_two_files_that_have_to_be_there(tmp_path: Path) -> None:
    auth = {"type": "client_certificate", "cert_file": "c.pem", "key_file": "k.pem", "password_env": "PW"}
    entry = REMOTE | {"auth": auth}
    assert "auth.cert_file: there is no file" in complaint(tmp_path, entry, {"PW": "x"})
    for missing in ("cert_file", "key_file"):
        nothing = REMOTE | {"auth": auth | {missing: None}}
        (tmp_path / "c.pem").write_text("")
        assert f"auth.{missing}: is missing" in complaint(tmp_path, nothing, {"PW": "x"})
    (tmp_path / "k.pem").write_text("")
    found = source(tmp_path, entry, {"PW": SECRET})
    assert found.auth == CertificateAuth(
        cert_file=tmp_path / "c.pem", key_file=tmp_path / "k.pem", password=Secret(SECRET)
    )


@pytest.mark.parametrize("key", ["token", "api_key", "password", "key", "secret"])
def test_a_secret_in_the_file_is_refused_with_what_to_do_instead(tmp_path: Path, key: str) -> None:
    problem = complaint(tmp_path, REMOTE | {"auth": {"type": "bearer", key: SECRET}})
    assert problem.startswith(f"mcp_sources[0].auth.{key}: secrets are not allowed here")
    assert "token_env" in problem


@pytest.mark.requirement("XP-3.1-28")
def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    entry = REMOTE | {"auth": {"type": "bearer", "token_env": "FAR_TOKEN"}}
    words = "mcp_sources[0].auth.token_env: the environment variable FAR_TOKEN is not set or empty"
    words += " (source far)"
    assert complaint(tmp_path, entry) == words
    assert complaint(tmp_path, entry, {"FAR_TOKEN": " "}) == words
    # A token that was put where the variable's name belongs is not repeated.
    assert "of that name" in complaint(
        tmp_path, REMOTE | {"auth": {"type": "bearer", "token_env": f"{SECRET}!"}}
    )
    assert "not allowed in a header" in complaint(tmp_path, entry, {"FAR_TOKEN": f"{SECRET}\nX-Evil: 1"})


def test_a_process_gets_secrets_by_the_names_of_variables(tmp_path: Path) -> None:
    entry = STDIO | {"env": {"MODE": "fast"}, "pass_env": ["ONE_TOKEN"]}
    found = source(tmp_path, entry, {"ONE_TOKEN": SECRET, "OTHER": "x"})
    assert found.variables == {"MODE": "fast", "ONE_TOKEN": SECRET}
    assert SECRET not in repr(found)
    assert complaint(tmp_path, entry).startswith("mcp_sources[0].pass_env[0]: ")
    (note,) = settings_of(tmp_path, mcp_sources=[STDIO | {"env": {"ONE_TOKEN": SECRET}}]).notes
    assert "pass_env" in note
    assert SECRET not in note


# Capabilities


def test_short_capabilities_are_written_out_on_loading(tmp_path: Path) -> None:
    """D-60."""
    entry = STDIO | {
        "capability_inference": "explicit",
        "capabilities": ["one.read", "write", "com.acme.one.admin"],
        "schema_overrides": {"do_it": {"required_capability": "admin"}},
    }
    found = source(tmp_path, entry)
    assert found.capabilities == ("com.acme.one.read", "com.acme.one.write", "com.acme.one.admin")
    assert found.override("do_it").required_capability == "com.acme.one.admin"
    other = complaint(tmp_path, STDIO | {"capabilities": ["two.read"]})
    assert other.startswith("mcp_sources[0].capabilities[0]: ")
    star = STDIO | {"schema_overrides": {"t": {"required_capability": "one.*"}}}
    assert complaint(tmp_path, star).startswith("mcp_sources[0].schema_overrides.t.required_capability: ")


def test_explicit_mode_needs_a_listed_capability_for_every_tool_that_the_file_names(tmp_path: Path) -> None:
    """D-61: never broader than the list."""
    entry = STDIO | {"capability_inference": "explicit"}
    assert complaint(tmp_path, entry) == (
        "mcp_sources[0].capabilities: is missing: capability_inference explicit needs it (source one)"
    )
    entry |= {"capabilities": ["one.read"], "tool_allowlist": ["get_it", "delete_it"]}
    problem = complaint(tmp_path, entry)
    assert problem.startswith("mcp_sources[0].capabilities: ")
    assert "delete_it" in problem
    assert source(tmp_path, entry | {"tool_allowlist": ["get_it"]}).allows("get_it")


def test_denied_tools_are_left_out_whatever_is_allowed(tmp_path: Path) -> None:
    found = source(tmp_path, STDIO | {"tool_allowlist": ["a", "b"], "tool_denylist": ["b"]})
    assert found.remove_denied([{"name": "a"}, {"name": "b"}, {"name": "c"}]) == [
        {"name": "a"},
        {"name": "c"},
    ]
    notes = settings_of(
        tmp_path, mcp_sources=[STDIO | {"tool_allowlist": ["b"], "tool_denylist": ["b"]}]
    ).notes
    assert any("tool_denylist" in note for note in notes)


def test_a_source_refreshes_as_it_says_or_as_all_do(tmp_path: Path) -> None:
    """D-72."""
    sources = [STDIO, REMOTE | {"schema_refresh_interval_seconds": 0}]
    settings = settings_of(
        tmp_path,
        mcp_sources=sources,
        xprotocol_sources=[{"name": "e", "endpoint": "xp://e.example"}],
        schema_refresh_interval_seconds=60,
    )
    assert [each.schema_refresh_interval_seconds for each in settings.mcp_sources] == [60, 0]
    assert settings.xprotocol_sources[0].schema_refresh_interval_seconds == 60


# XProtocol endpoints


@pytest.mark.requirement("XP-3.1-35")
def test_an_endpoint_is_named_by_a_host_or_by_key_and_relay_and_never_by_both(tmp_path: Path) -> None:
    def problems(**entry: Any) -> list[str]:
        return problems_of(tmp_path, xprotocol_sources=[{"name": "e", **entry}])

    direct = {"key": ALICE.key.text, "relay": "wss://relay.example"}
    assert problems(endpoint="xp://e.example") == []
    assert problems(**direct) == []
    (both,) = problems(endpoint="xp://e.example", **direct)
    assert both.startswith("xprotocol_sources[0]: has endpoint and key")
    for half in ({}, {"key": ALICE.key.text}, {"relay": "wss://relay.example"}):
        (missing,) = problems(**half)
        assert missing.startswith("xprotocol_sources[0]: give endpoint")
    assert problems(endpoint="https://e.example")[0].startswith("xprotocol_sources[0].endpoint: ")
    assert problems(key="ed25519:abc123...", relay="wss://r.example")[0].startswith(
        "xprotocol_sources[0].key: a placeholder"
    )
    assert problems(endpoint="xp://e.example", mcp_tool_prefix="a.b")[0].startswith(
        "xprotocol_sources[0].mcp_tool_prefix: "
    )
