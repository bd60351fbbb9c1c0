"""The schema of the official SDK judges every message that we send to an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.agents.acp.agent_space import agent_space, tool_call
from tests.agents.acp.official_schema import model_of
from tests.agents.acp.test_permissions import edit
from tests.waiting import until

REQUESTS: Final[dict[str, str]] = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/load": "LoadSessionRequest",
    "session/set_mode": "SetSessionModeRequest",
    "session/prompt": "PromptRequest",
    "session/cancel": "CancelNotification",
}


def judge(message: dict[str, Any]) -> str:
    """What kind of message it is; raises ValidationError if it is not a valid one."""
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        model = model_of(REQUESTS[message["method"]])
        model.model_validate(message["params"])
        # Fields that the schema does not know would be a mistake of ours.
        known = {field.alias or name for name, field in model.model_fields.items()}
        assert set(message["params"]) <= known
        return str(message["method"])
    if "error" in message:
        assert isinstance(message["error"]["code"], int)
        return "error"
    model_of("RequestPermissionResponse").model_validate(message["result"])
    return "permission"


async def test_every_message_that_an_agent_gets_is_valid(tmp_path: Path) -> None:
    turns = [
        [{"ask": {"toolCallId": "p", "kind": "edit"}, "options": [], "refused": []}, *edit(tmp_path)],
        edit(tmp_path),
        [tool_call(title="x"), {"await_cancel": True}],
        edit(tmp_path),
    ]
    settings = {"probe": True}
    async with agent_space(tmp_path, *turns, settings=settings, load=True) as space:
        await space.ask()
        await space.alice.approve((await space.proposal()).id)
        await space.alice.reject((await space.proposal(2)).id)
        start = await until(lambda: space.of("reasoning/start"))
        await until(lambda: len(space.prompts()) >= 3)
        await space.alice.cancel_reasoning(start[0].id)
        await space.wait_for("chat", "I stopped")
        await space.alice.admin.restart("agent")
        await space.wait_for("chat", "The agent runs again.")
        judged = {judge(message) for message in space.received()}
        assert judged == {
            "initialize", "session/new", "session/load", "session/prompt", "session/cancel", "permission",
        }  # fmt: skip


def test_the_judge_can_say_no() -> None:
    for bad in (
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "session/prompt",
            "params": {"sessionId": "s", "prompt": "text"},
        },
        {"jsonrpc": "2.0", "id": 1, "result": {"outcome": {"outcome": "allowed"}}},
        {"jsonrpc": "2.0", "id": 1, "method": "session/cancel", "params": {"sessionId": "s", "why": "x"}},
    ):
        try:
            judge(bad)
        except (ValueError, AssertionError):
            continue
        raise AssertionError(f"judged as valid: {bad}")
