"""A space with a scripted ACP agent in it, and people who talk to it and decide."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from moot.agents.acp.acp_member import AcpMember
from moot.agents.acp.acp_settings import AcpSettings
from moot.agents.acp.agent_profiles import AgentProfile
from moot.agents.acp.turn_runner import TurnRunner
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.participant.watched_agent import WatchedAgent, running_member
from tests.waiting import until

AGENT = Path(__file__).with_name("scripted_agent.py")
RIGHTS: list[Any] = [
    "chat",
    "chat/*",
    "reasoning/*",
    "mcp/proposal",
    "mcp/withdraw",
    "participant/status",
    "participant/compact-done",
]


def tool_call(id: str = "c1", **fields: Any) -> dict[str, Any]:
    """The step that tells of a tool call."""
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": id, **fields}}


def tool_update(id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}}


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


class AgentSpace(WatchedAgent):
    """The agent's member, and `alice` who may do everything."""

    def __init__(
        self,
        gateway: LocalGateway,
        folder: Path,
        settings: AcpSettings,
        alice: JoinedSpace,
        stack: AsyncExitStack,
        profile: AgentProfile | None = None,
    ) -> None:
        super().__init__(alice, "agent")
        self.gateway = gateway
        self.folder = folder
        self.settings = settings
        self.stack = stack
        self.member = AcpMember(settings, profile)

    async def proposal(self, number: int = 1) -> Envelope:
        await until(lambda: len(self.of("mcp/proposal")) >= number)
        return self.of("mcp/proposal")[number - 1]

    async def idle(self) -> None:
        """The agent has no turn."""
        turns = self.turns
        await until(lambda: turns.current is None and not turns.queue.waiting)

    @property
    def turns(self) -> TurnRunner:
        assert self.member.turns is not None
        return self.member.turns

    def approve_later(self, proposal: Envelope) -> None:
        """Approve a call without waiting for its end."""

        async def approve() -> None:
            await self.alice.approve(proposal.id)

        self.alice.spawn(approve())

    def received(self, method: str = "") -> list[dict[str, Any]]:
        """What the agent's process got from us."""
        file = self.folder / "received.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if not method or line.get("method") == method]

    def prompts(self) -> list[str]:
        """The texts of all prompts but those of the probe."""
        texts = [
            "\n".join(block["text"] for block in line["params"]["prompt"])
            for line in self.received("session/prompt")
        ]
        return [text for text in texts if "probe-" not in text]

    async def decided(self, *options: str) -> None:
        """The agent has read these answers to its permission requests, and no others; "" is cancelled."""
        expected = [
            {"outcome": "selected", "optionId": option} if option else {"outcome": "cancelled"}
            for option in options
        ]
        await until(lambda: len(self.outcomes()) >= len(expected))
        assert self.outcomes() == expected

    def outcomes(self) -> list[Any]:
        """Our answers to permission requests."""
        return [line["result"]["outcome"] for line in self.received() if "outcome" in line.get("result", {})]


def write_script(folder: Path, *turns: list[dict[str, Any]], **options: Any) -> Path:
    script = folder / "script.json"
    script.write_text(json.dumps({"options": options, "turns": list(turns)}))
    return script


def settings_for(gateway: str, folder: Path, **more: Any) -> AcpSettings:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (folder / "state").mkdir(mode=0o700, exist_ok=True)
    given: dict[str, Any] = {
        "argv": (sys.executable, "-I", "-S", str(AGENT), str(folder / "script.json")),
        "folder": work,
        "gateway": gateway,
        "space": "lab",
        "token": "t-agent",
        "state_folder": folder / "state",
        "probe": False,
    }
    return AcpSettings(**(given | more))


@asynccontextmanager
async def agent_space(
    folder: Path,
    *turns: list[dict[str, Any]],
    rights: list[Any] | None = None,
    people: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    profile: AgentProfile | None = None,
    rules: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[AgentSpace]:
    """A gateway, the agent with this script, and alice."""
    write_script(folder, *turns, **options)
    (folder / "gateway").mkdir()
    everybody = participants(alice=["*"], agent=RIGHTS if rights is None else rights, **(people or {}))
    async with (
        running_gateway(folder / "gateway", everybody, rules=rules) as gateway,
        AsyncExitStack() as stack,
    ):
        made = settings_for(gateway.url, folder, **(settings or {}))
        alice = await stack.enter_async_context(connect(gateway.url, "lab", "t-alice"))
        space = AgentSpace(gateway, folder, made, alice, stack, profile)
        await stack.enter_async_context(running_member(space.member, made))
        yield space
