"""A space in an editor: prompts are chats, and the person at the editor decides with their own rights."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from moot.agents.acp import editor_server
from moot.agents.acp.editor_server import EditorServer
from moot.agents.acp.editor_view import describe_call
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from tests.agents.acp.official_schema import model_of
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import bounded, until
from tests.warm_start import warm_programs

RESULTS: Final[dict[str, str]] = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/prompt": "PromptResponse",
}
TOOL = {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "write"}}}


@dataclass(slots=True)
class Editor:
    """An editor in this process. The SDK's schema judges every line that it gets."""

    server: EditorServer | None = None
    updates: list[dict[str, Any]] = field(default_factory=list)
    permissions: list[dict[str, Any]] = field(default_factory=list)
    cancelled: list[Any] = field(default_factory=list)
    # Tool calls that began, and updates of others: editors report an error for these.
    calls: set[str] = field(default_factory=set)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    _answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    _methods: dict[int, str] = field(default_factory=dict)
    session: str = ""

    def receive(self, line: bytes) -> None:
        message = json.loads(line)
        method = message.get("method")
        if method == "session/update":
            model_of("SessionNotification").model_validate(message["params"])
            update = message["params"]["update"]
            self.updates.append(update)
            if update["sessionUpdate"] == "tool_call":
                self.calls.add(update["toolCallId"])
            elif update["sessionUpdate"] == "tool_call_update" and update["toolCallId"] not in self.calls:
                self.unknown.append(update)
        elif method == "session/request_permission":
            model_of("RequestPermissionRequest").model_validate(message["params"])
            self.permissions.append(message)
        elif method == "$/cancel_request":
            self.cancelled.append(message["params"]["requestId"])
        else:
            if "result" in message and self._methods[message["id"]] in RESULTS:
                model_of(RESULTS[self._methods[message["id"]]]).model_validate(message["result"])
            self._answers[message["id"]] = message

    def send(self, message: dict[str, Any]) -> None:
        assert self.server is not None
        self.server.peer.feed(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def start_request(self, method: str, params: dict[str, Any]) -> int:
        number = len(self._methods) + 1
        self._methods[number] = method
        self.send({"id": number, "method": method, "params": params})
        return number

    async def answer(self, number: int) -> dict[str, Any]:
        await until(lambda: number in self._answers)
        return self._answers[number]

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer(self.start_request(method, params))

    def prompt(self, text: str) -> int:
        blocks = [{"type": "text", "text": text}]
        return self.start_request("session/prompt", {"sessionId": self.session, "prompt": blocks})

    def decide(self, option: str | None) -> None:
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        self.send({"id": self.permissions[-1]["id"], "result": {"outcome": outcome}})

    def shown(self, kind: str) -> str:
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)


@asynccontextmanager
async def editor_space(
    folder: Path, ana: list[Any] | None = None
) -> AsyncIterator[tuple[Editor, JoinedSpace, LocalGateway]]:
    """Ana sits at an editor; bob is another member."""
    rights = participants(ana=["*"] if ana is None else ana, bob=["*"], carl=["mcp/proposal", "mcp/withdraw"])
    async with (
        running_gateway(folder, rights) as gateway,
        connect(gateway.url, "lab", "t-bob") as bob,
        connect(gateway.url, "lab", "t-ana") as space,
    ):
        editor = Editor()
        server = editor.server = EditorServer(space, editor.receive, sign_seconds=0.5)
        await server.start()
        await until(lambda: "bob" in space.roster)
        try:
            await editor.request("initialize", protocolVersion=1)
            answer = await editor.request("session/new", cwd="/", mcpServers=[])
            editor.session = answer["result"]["sessionId"]
            modes = [each["id"] for each in answer["result"]["modes"]["availableModes"]]
            assert modes == ["everybody", "bob"]
            yield editor, bob, gateway
            assert editor.unknown == []
        finally:
            await server.close()


async def test_a_prompt_is_a_chat_to_the_chosen_member_and_its_answer_ends_the_turn(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, _):
        heard: list[Envelope] = []
        bob.on("chat")(heard.append)
        await editor.request("session/set_mode", sessionId=editor.session, modeId="bob")
        prompt = editor.prompt("hello")
        await until(lambda: heard)
        assert heard[0].sender == "ana"
        assert list(heard[0].to) == ["bob"]
        async with bob.reasoning("what to say", about=heard[0].id) as reasoning:
            await reasoning.thought("something kind")
            await bob.chat("hello Ana", to="ana", about=heard[0].id)
        assert (await editor.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert editor.shown("agent_message_chunk") == "**bob:** hello Ana\n\n"
        assert "something kind" in editor.shown("agent_thought_chunk")


async def test_an_answer_that_is_faster_than_the_echo_of_the_prompt_ends_it(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, _):
        assert editor.server is not None
        space = editor.server._space
        send = space._sender.wait_for_echo

        async def wait_longer(sent: Any) -> Envelope:
            echo = await send(sent)
            await until(lambda: "quick" in editor.shown("agent_message_chunk"))
            return echo

        space._sender.wait_for_echo = wait_longer  # type: ignore[method-assign]

        @bob.on("chat")
        async def answer(chat: Envelope) -> None:
            await bob.chat("quick", to="ana", about=chat.id)

        assert (await editor.answer(editor.prompt("hello")))["result"] == {"stopReason": "end_turn"}
        assert "Nobody has answered" not in editor.shown("agent_message_chunk")


async def test_a_prompt_that_nobody_answers_ends_and_a_cancelled_one_cancels_the_chat(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, _):
        heard: list[Envelope] = []
        bob.on("chat*")(heard.append)
        bob.on("chat/cancel")(heard.append)
        assert (await editor.answer(editor.prompt("anybody?")))["result"] == {"stopReason": "end_turn"}
        assert "Nobody has answered yet." in editor.shown("agent_message_chunk")
        prompt = editor.prompt("and now?")
        await until(lambda: any(each.payload.get("text") == "and now?" for each in heard))
        editor.send({"method": "session/cancel", "params": {"sessionId": editor.session}})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}
        await until(lambda: any(each.kind == "chat/cancel" for each in heard))


async def test_a_prompt_that_is_cancelled_before_its_work_began_is_cancelled(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, _, _gateway):
        prompt = editor.prompt("never mind")
        editor.send({"method": "session/cancel", "params": {"sessionId": editor.session}})
        assert (await editor.answer(prompt))["result"] == {"stopReason": "cancelled"}


@asynccontextmanager
async def proposed(bob: JoinedSpace, gateway: LocalGateway) -> AsyncIterator[tuple[Any, list[str]]]:
    """Carl proposes to write with bob's tool; what was written."""
    written: list[str] = []

    @bob.tool
    def write(text: str) -> str:
        """Write."""
        written.append(text)
        return "written"

    async with connect(gateway.url, "lab", "t-carl") as carl:
        yield await carl.propose("bob", "tools/call", {"name": "write", "arguments": {"text": "x"}}), written


async def test_an_editor_is_told_where_values_came_from_also_while_it_asks(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, gateway), proposed(bob, gateway) as (proposal, _):
        await until(lambda: editor.permissions)
        assert "nobody" not in json.dumps(editor.permissions[0])
        found = {"path": "text", "value": "x", "origin": "nobody", "text": "nobody said `x`", "steers": True}
        report = {"asks": True, "why": "text: nobody said `x`", "arguments": [found]}
        await bob.send("moot/origins", report, about=proposal.id)
        await until(lambda: "nobody" in json.dumps(editor.updates))
        changed = [each for each in editor.updates if each["sessionUpdate"] == "tool_call_update"]
        text = changed[0]["content"][0]["content"]["text"]
        assert text == "```text\n! text: nobody said 'x'\ntext: nobody said 'x'\n```"


async def test_a_proposal_is_decided_in_the_editor_with_the_rights_of_its_person(tmp_path: Path) -> None:
    async with (
        editor_space(tmp_path) as (editor, bob, gateway),
        proposed(bob, gateway) as (proposal, written),
    ):
        await until(lambda: editor.permissions)
        params = editor.permissions[0]["params"]
        assert params["toolCall"]["title"] == "carl → bob: write"
        assert params["toolCall"]["rawInput"] == {"text": "x"}
        assert [each["kind"] for each in params["options"]] == ["allow_once", "reject_once"]
        editor.decide("approve")
        async with bounded():
            outcome = await proposal.outcome()
        assert (outcome.by, written) == ("ana", ["x"])
        await until(lambda: any(each.get("status") == "completed" for each in editor.updates))


async def test_comments_stand_at_the_question_and_are_made_from_the_editor(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, _):
        await until(
            lambda: any(each["sessionUpdate"] == "available_commands_update" for each in editor.updates)
        )
        assert (await editor.answer(editor.prompt("/comment hello")))["result"] == {"stopReason": "end_turn"}
        assert "asked about no proposal" in editor.shown("agent_message_chunk")
        first, proposal = [
            await bob.propose("ana", "tools/call", {"name": name, "arguments": {}}, wait_for_others=True)
            for name in ("write", "send")
        ]
        await until(lambda: len(editor.permissions) == 2)
        await bob.comment(proposal.id, "it is for `@carl`")

        def updates() -> list[str]:
            shown = [each for each in editor.updates if each.get("toolCallId") == proposal.id]
            return [each["content"][0]["content"]["text"] for each in shown]

        await until(lambda: "```text\nbob says: it is for '@carl'\n```" in updates())
        # A prompt is under way: what is said about a proposal is no turn.
        await editor.request("session/set_mode", sessionId=editor.session, modeId="bob")
        waiting = editor.prompt("hello")
        await editor.answer(editor.prompt("/comment which folder?"))
        await until(lambda: [each.text for each in proposal.comments][1:] == ["which folder?"])
        assert proposal.comments[1].by == "ana"
        await editor.answer(editor.prompt(f"/comment {first.id[:8]} and that?"))
        await until(lambda: [each.text for each in first.comments] == ["and that?"])
        assert f"Said about send by bob. For another one begin with its id: write ({first.id[:8]})." in (
            editor.shown("agent_message_chunk")
        )
        await editor.answer(waiting)
        assert proposal.state == first.state == "pending"


async def test_whatever_else_the_editor_answers_decides_nothing(tmp_path: Path) -> None:
    async with (
        editor_space(tmp_path) as (editor, bob, gateway),
        proposed(bob, gateway) as (proposal, written),
    ):
        await until(lambda: editor.permissions)
        editor.decide("allow_always")
        await until(lambda: any("Not decided here" in str(each) for each in editor.updates))
        assert (proposal.state, written) == ("pending", [])


async def test_a_rejection_in_the_editor_is_one_in_the_space(tmp_path: Path) -> None:
    async with (
        editor_space(tmp_path) as (editor, bob, gateway),
        proposed(bob, gateway) as (proposal, written),
    ):
        await until(lambda: editor.permissions)
        editor.decide("reject")
        await until(lambda: proposal.state == "rejected")
        assert ([each.by for each in proposal.rejections], written) == (["ana"], [])


async def test_a_request_that_somebody_else_decided_is_taken_back(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, bob, gateway), proposed(bob, gateway) as (proposal, _):
        await until(lambda: editor.permissions)
        await until(lambda: bob.proposals.get(proposal.id))
        await bob.approve(proposal.id)
        await until(lambda: editor.cancelled == [editor.permissions[0]["id"]])
        # How it ended is shown at the proposal's own tool call.
        ends = {"toolCallId": proposal.id, "status": "completed"}
        await until(lambda: any(ends.items() <= each.items() for each in editor.updates))
        # A late answer decides nothing.
        editor.decide("reject")
        assert proposal.rejections == ()


async def test_tool_calls_that_never_end_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`MAX_OPEN_CALLS`: the oldest first."""
    monkeypatch.setattr(editor_server, "MAX_OPEN_CALLS", 2)
    async with editor_space(tmp_path) as (editor, _, _):
        assert editor.server is not None
        for number in range(3):
            editor.server._note_call(f"c{number}", f"c{number}")
        assert list(editor.server._calls) == ["c1", "c2"]


async def test_who_may_not_decide_is_not_asked(tmp_path: Path) -> None:
    async with (
        editor_space(tmp_path, ana=["chat"]) as (editor, bob, gateway),
        proposed(bob, gateway) as (_, written),
    ):
        await until(lambda: "carl proposes write; others decide that." in editor.shown("agent_message_chunk"))
        assert (editor.permissions, written) == ([], [])


async def test_forged_sessions_and_unknown_methods_are_refused(tmp_path: Path) -> None:
    async with editor_space(tmp_path) as (editor, _, __):
        blocks = [{"type": "text", "text": "x"}]
        for method, params in (
            ("session/prompt", {"sessionId": "moot-0", "prompt": blocks}),
            ("session/prompt", {"sessionId": editor.session, "prompt": []}),
            ("session/set_mode", {"sessionId": editor.session, "modeId": "nobody"}),
            ("session/load", {"sessionId": editor.session}),
        ):
            answer = await editor.request(method, **params)
            assert answer["error"]["code"] in (-32601, -32602), method


class SdkClient:
    """The official SDK as an editor: it approves whatever it is asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked: list[Any] = []

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        self.asked.append(tool_call)
        outcome = model_of("AllowedOutcome")(outcome="selected", option_id=options[0].option_id)
        return model_of("RequestPermissionResponse")(outcome=outcome)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if isinstance(update, model_of("AgentMessageChunk")):
            content: Any = getattr(update, "content", None)
            if isinstance(content, model_of("TextContentBlock")):
                self.texts.append(content.text)


async def test_the_official_sdk_talks_to_the_command(tmp_path: Path) -> None:
    import acp

    token = tmp_path / "ana.token"
    token.write_text("t-ana")
    token.chmod(0o600)
    rights = participants(ana=["*"], bob=["*"], carl=["mcp/proposal", "mcp/withdraw"])
    (tmp_path / "gateway").mkdir()
    async with (
        running_gateway(tmp_path / "gateway", rights) as gateway,
        connect(gateway.url, "lab", "t-bob") as bob,
    ):

        @bob.on("chat")
        async def answer(chat: Envelope) -> None:
            await bob.chat("hello from the space", to="ana", about=chat.id)

        client: Any = SdkClient()
        arguments = ["acp", "--serve", "--gateway", gateway.url, "--space", "lab"]
        arguments += ["--token-file", str(token), "--to", "bob"]
        async with (
            bounded(),
            acp.spawn_agent_process(client, str(warm_programs() / "moot"), *arguments) as (editor, process),
        ):
            await editor.initialize(protocol_version=acp.PROTOCOL_VERSION)
            session = await editor.new_session(cwd=str(tmp_path), mcp_servers=[])
            assert session.modes is not None
            assert session.modes.current_mode_id == "bob"
            done = await editor.prompt(session_id=session.session_id, prompt=[acp.text_block("hello")])
            assert done.stop_reason == "end_turn"
            assert client.texts == ["**bob:** hello from the space\n\n"]
            async with proposed(bob, gateway) as (proposal, written):
                assert (await proposal.outcome()).by == "ana"
                assert written == ["x"]
                assert client.asked[0].title == "carl → bob: write"
        async with bounded():
            assert await process.wait() == 0


@pytest.mark.parametrize("name", ["search", "read", "fetch", "think", "edit", "anything"])
def test_what_a_tool_is_called_says_nothing_about_what_it_does(name: str) -> None:
    """An editor that approves reads by itself must not take a member's tool for one by its name."""
    given: dict[str, Any] = {"name": name, "arguments": {"path": "a"}}
    assert describe_call("agent", ("files",), given)["kind"] == "other"
    given["arguments"] = {"query": {"command": "rm -rf ~"}}
    assert describe_call("agent", ("files",), given)["kind"] == "execute"
