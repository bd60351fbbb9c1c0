"""Looking after a space from a shell: members, tools, invitations, grants and controls (MEW 3.6, 3.9)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from moot.participant import JoinedSpace
from moot.protocol.operation import Json
from tests.cli.space_with_members import SpaceWithMembers
from tests.waiting import until, until_seen


@pytest.fixture
def host(lab: SpaceWithMembers) -> JoinedSpace:
    space = lab.join("host")

    async def offer() -> None:
        @space.tool
        def add(a: int, b: int) -> int:
            """Add two numbers.

            Args:
                a: the first
            """
            return a + b

        @space.tool
        def fail() -> str:
            raise ValueError("on purpose")

        @space.resource("note://1", name="note", mime_type="text/plain")
        def note() -> str:
            return "noted"

    lab.do(offer())
    return space


def test_members_and_what_they_may(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    rows = {row["id"]: row for row in lab.value("members")}
    assert rows["alice"]["you"]
    assert rows["host"]["capabilities"] == [{"kind": "mcp/response"}, {"kind": "chat"}]
    assert "\nhost         mcp/response, chat\n" in lab.output_of("members")


def test_tools_of_everybody_or_of_one(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    assert "host    add   a, b       Add two numbers.\n" in lab.output_of("tools", "host")
    everybody = lab.value("tools")
    assert [(tool["member"], tool["name"]) for tool in everybody] == [("host", "add"), ("host", "fail")]


def test_arguments_have_the_types_of_the_tool(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    assert lab.output_of("call", "host", "add", "a=1", "b=2") == "3\n"
    code, words = lab.fails("call", "host", "add", "a=one", "b=2")
    assert (code, words) == (2, "moot: the argument a is of type integer, not 'one'\n")
    # Also where it is proposed, so that who decides reads what will run.
    lab.value("call", "host", "add", "a=1", "b=2", "--propose", "--no-wait")
    (pending,) = lab.value("proposals")
    assert pending["params"]["arguments"] == {"a": 1, "b": 2}


def test_a_tool_that_is_nearly_called_so_is_named(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    code, words = lab.fails("call", "host", "fial")
    assert (code, words) == (1, "moot: unknown tool: 'fial'. host offers: add, fail\n")
    code, words = lab.fails("call", "host", "addd", "a=1", "--propose")
    assert (code, words) == (2, "moot: host offers no tool addd. Did you mean add?\n")


def test_a_tool_is_called_with_typed_arguments(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    assert lab.output_of("call", "host", "add", "a:=1", "b:=2") == "3\n"
    value = lab.value("call", "host", "add", '{"a": 2, "b": 3}')
    assert (value["how"], value["result"]["structuredContent"]) == ("direct", {"result": 5})
    assert lab.type("call", "host", "fail") == 1
    code, words = lab.fails("call", "host", "add", "a:=one")
    assert (code, "is not valid JSON" in words) == (2, True)
    assert "name=text" in lab.fails("call", "host", "add", "a")[1]
    assert lab.fails("call", "host", "add", "a:=1", "b:=2", "--direct", "--as", "agent")[0] == 3


def test_any_mcp_request_can_be_made(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    assert (
        lab.value("member", "request", "host", "resources/read", '{"uri": "note://1"}')["contents"][0]["text"]
        == "noted"
    )
    code, words = lab.fails("member", "request", "host", "no/such")
    assert (code, "-32601" in words) == (1, True)


def test_an_invitation_gives_a_token_that_works_and_a_file_for_it(
    lab: SpaceWithMembers, tmp_path: Path
) -> None:
    value = lab.value("member", "invite", "carol", "chat", "mcp/request:tools/call:read_file")
    assert value["member"] == "carol"
    file = tmp_path / "carol.token"
    file.write_text(value["token"])
    file.chmod(0o600)
    where = ("--gateway", lab.gateway.url, "--token-file", str(file))
    (row,) = [row for row in lab.value("members", *where) if row["you"]]
    assert {"kind": "chat"} in row["capabilities"]
    assert row["capabilities"][1]["payload"] == {"method": "tools/call", "params": {"name": "read_file"}}
    kept = tmp_path / "dave.token"
    answer = lab.output_of("member", "invite", "dave", "--token-out", str(kept))
    assert kept.read_text().strip() not in answer
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert lab.value("members", "--gateway", lab.gateway.url, "--token-file", str(kept))


def test_a_token_never_replaces_a_file_and_a_refused_invitation_leaves_none(
    lab: SpaceWithMembers, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert "already exists" in lab.fails("member", "invite", "eve", "--token-out", str(taken))[1]
    assert taken.read_text() == "mine"
    fresh = tmp_path / "fresh"
    # bob is a participant already.
    assert lab.fails("member", "invite", "bob", "--token-out", str(fresh))[0] == 1
    assert not fresh.exists()


@pytest.mark.requirement("MEW-9.2-1")
def test_a_grant_opens_a_tool_and_its_revocation_closes_it(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    call = ("call", "host", "add", "a:=1", "b:=1", "--direct", "--as", "agent")
    assert lab.fails(*call)[0] == 3
    grant = lab.value("member", "grant", "agent", "mcp/request:tools/call:add")["id"]
    assert lab.output_of(*call) == "2\n"
    lab.output_of("member", "revoke", "agent", "--grant", grant)
    assert lab.fails(*call)[0] == 3
    lab.output_of("member", "grant", "agent", "mcp/request", "--reason", "trusted")
    assert lab.output_of(*call) == "2\n"
    lab.output_of("member", "revoke", "agent", "mcp/request")
    assert lab.fails(*call)[0] == 3
    code, words = lab.fails("member", "revoke", "agent")
    assert (code, "--grant ID" in words) == (2, True)


def test_a_grant_for_one_use_or_a_time_ends_by_itself(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    call = ("call", "host", "add", "a:=1", "b:=1", "--direct", "--as", "agent")
    lab.output_of("member", "grant", "agent", "mcp/request:tools/call:add", "--uses", "1", "--for", "1h")
    assert lab.output_of(*call) == "2\n"
    assert lab.fails(*call)[0] == 3


def test_a_grant_is_limited_to_a_part_of_the_web_or_a_folder(lab: SpaceWithMembers) -> None:
    agent = lab.join("agent")
    fetch = ("member", "grant", "agent", "mcp/request:tools/call:fetch")
    lab.output_of(*fetch, "--below", "url=https://a.example/docs/", "--below", "path=notes/")

    def may(url: str, path: str) -> bool:
        arguments: Json = {"url": url, "path": path}
        return agent.may_request("host", "tools/call", {"name": "fetch", "arguments": arguments})

    until_seen(lambda: may("https://a.example/docs/x", "notes/a"))
    assert not may("https://a.example.evil.net/docs/x", "notes/a")
    assert not may("https://a.example/docs/%2e%2e/x", "notes/a")
    assert not may("https://a.example/docs/x", "notes/../a")
    for wrong, answer in (
        ("url=https://a.example", "is not the beginning of an address"),
        ("url=javascript:alert(1)", "is not the beginning of an address"),
        ("url=javascript:alert(1)/", "is not the beginning of an address"),
        ("path=notes", "is not a folder"),
        ("path=*/", "is not a folder"),
        ("notes/", "NAME=PLACE"),
    ):
        code, words = lab.fails(*fetch, "--below", wrong)
        assert (code, answer in words) == (2, True), words
    assert lab.fails("member", "grant", "agent", "chat", "--below", "path=notes/")[0] == 2


def test_a_revocation_that_removes_nothing_says_so_and_fails(lab: SpaceWithMembers) -> None:
    lab.join("agent")
    code, words = lab.fails("member", "revoke", "agent", "chat")
    assert code == 1
    assert words == (
        "nothing was removed: no grant to agent is covered by this\nstill held from other sources: chat\n"
    )
    code, words = lab.fails("member", "revoke", "agent", "acme/thing")
    assert (code, words) == (1, "nothing was removed: no grant to agent is covered by this\n")
    lab.output_of("member", "grant", "agent", "acme/thing")
    assert lab.value("member", "revoke", "agent", "acme/*")["removed"] == [{"kind": "acme/thing"}]


def test_rights_of_somebody_who_is_not_connected_are_revoked_unseen(lab: SpaceWithMembers) -> None:
    lab.output_of("member", "grant", "agent", "acme/thing")
    answer = lab.output_of("member", "revoke", "agent", "acme/thing")
    assert answer == "agent holds nothing that this covers any more\n"
    code, words = lab.fails("member", "revoke", "agent", "chat")
    assert (code, "still held from other sources: chat" in words) == (1, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense:::x", "is not a capability"),
        ("mcp/request:tools/call:", "is not a capability"),
        ("ch at", "is not a capability"),
        ("[1]", "is not a capability"),
        ("", "is not a capability"),
        ("chat:tools/call", "chat does not"),
        ("chatt", "did you mean chat?"),
        ("mcp/requests", "did you mean mcp/request?"),
        ("mcp/request:tools/cal:x", "did you mean tools/call?"),
        ("write_file", "did you mean mcp/request:tools/call:write_file?"),
    ],
)
def test_a_capability_that_means_nothing_is_not_granted(lab: SpaceWithMembers, text: str, said: str) -> None:
    for command in ("grant", "revoke", "invite"):
        code, words = lab.fails("member", command, "agent" if command != "invite" else "newcomer", text)
        assert (code, said in words) == (2, True), words


def test_whoever_means_it_writes_it_as_json(lab: SpaceWithMembers) -> None:
    lab.join("agent")
    assert lab.value("member", "grant", "agent", '{"kind": "chatt"}', "acme/thing")["member"] == "agent"
    row = next(row for row in lab.value("members") if row["id"] == "agent")
    assert row["capabilities"][-2:] == [{"kind": "chatt"}, {"kind": "acme/thing"}]


def test_the_name_in_a_capability_stands_where_its_method_has_it(lab: SpaceWithMembers) -> None:
    lab.join("agent")
    lab.output_of("member", "grant", "agent", "mcp/request:resources/read:note://1")
    row = next(row for row in lab.value("members") if row["id"] == "agent")
    assert row["capabilities"][-1] == {
        "kind": "mcp/request",
        "payload": {"method": "resources/read", "params": {"uri": "note://1"}},
    }


def test_a_pause_of_no_time_and_a_name_that_is_taken_are_said_plainly(lab: SpaceWithMembers) -> None:
    lab.join("agent")
    for wrong in ("-3", "soon", "1hour", "0s"):
        for command in ("pause", "grant"):
            with pytest.raises(SystemExit):
                lab.type(
                    "member", command, "agent", f"--for={wrong}", *(["chat"] if command == "grant" else [])
                )
            assert "argument --for" in lab.capsys.readouterr().err
    assert "a participant with that name exists" in lab.fails("member", "invite", "agent")[1]


@pytest.mark.parametrize(
    "words",
    [
        ("member", "kick", "nobody"),
        ("member", "pause", "nobody"),
        ("member", "resume", "nobody"),
        ("member", "status", "nobody"),
        ("member", "control", "shutdown", "nobody"),
        ("member", "grant", "nobody", "chat"),
        ("member", "revoke", "nobody", "--grant", "x"),
        ("member", "revoke", "agent", "--grant", "nosuch"),
    ],
    ids=" ".join,
)
def test_nothing_is_claimed_about_nobody(lab: SpaceWithMembers, words: tuple[str, ...]) -> None:
    code, output = lab.fails(*words)
    assert code == 3
    assert "nobody" in output or "nosuch" in output


def test_nobody_grants_what_they_do_not_hold(lab: SpaceWithMembers) -> None:
    code, words = lab.fails("member", "grant", "bob", "mcp/request", "--as", "agent")
    assert (code, bool(words)) == (3, True)


def test_a_paused_member_is_held_back_until_it_is_resumed(lab: SpaceWithMembers, host: JoinedSpace) -> None:
    agent = lab.join("agent")
    lab.output_of("member", "pause", "agent", "--reason", "wait", "--for", "1h")
    lab.do(until(lambda: agent.paused is not None))
    assert lab.fails("send", "hello", "--as", "agent")[0] in (1, 3)
    lab.output_of("member", "resume", "agent")
    lab.do(until(lambda: agent.paused is None))
    lab.output_of("send", "hello", "--as", "agent")


def test_controls_are_answered_by_the_member(lab: SpaceWithMembers) -> None:
    agent = lab.join("agent")
    assert "messages_in_context" in lab.value("member", "status", "agent")
    assert "messages_in_context" in lab.output_of("member", "status", "agent", "tokens")
    for action in ("clear", "restart"):
        lab.output_of("member", "control", action, "agent")
    lab.output_of("member", "control", "forget", "agent", "--newest", "--entries", "2")
    lab.output_of("member", "control", "compact", "agent", "--target-tokens", "10")
    lab.output_of("member", "control", "shutdown", "agent", "--reason", "done")
    lab.do(until(lambda: agent.close_reason is not None))


def test_a_kicked_member_is_out_and_stays_out(lab: SpaceWithMembers) -> None:
    agent = lab.join("agent")
    lab.output_of("member", "kick", "agent", "--reason", "enough")
    ending = lab.do(agent.stay())
    assert ending.code != 1000
    assert lab.fails("members", "--as", "agent")[0] == 5
