"""A space with a scripted ACP agent in it, and people who talk to it and decide."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moot.acp.acp_member import AcpMember
from moot.acp.acp_settings import AcpLimits, AcpSettings
from moot.participant import JoinedSpace, connect
from moot.protocol.envelope import Envelope
from moot.resilience.restart_loop import RestartPolicy
from tests.gateway.running_gateway import LocalGateway, participants, running_gateway
from tests.waiting import bounded, until

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
QUICK = RestartPolicy(first_seconds=0.01, max_seconds=0.05)


def tool_call(id: str = "c1", **fields: Any) -> dict[str, Any]:
    """The step that tells of a tool call."""
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": id, **fields}}


def tool_update(id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": id, **fields}}


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


@dataclass(slots=True)
class AgentSpace:
    """The agent's member, `alice` who may do everything, and all that she got."""

    gateway: LocalGateway
    folder: Path
    settings: AcpSettings
    member: AcpMember
    alice: JoinedSpace
    stack: AsyncExitStack
    heard: list[Envelope] = field(default_factory=list)

    async def hear(self, kind: str, contains: str = "", sender: str = "agent") -> Envelope:
        """The first envelope of this kind that contains a text, now or later."""

        def found() -> Envelope | None:
            return next((each for each in self.heard if fits(each)), None)

        def fits(each: Envelope) -> bool:
            is_from = not sender or each.sender == sender
            return each.kind == kind and is_from and contains in json.dumps(each.payload, ensure_ascii=False)

        heard = await until(found, lambda: "\n".join(f"{e.sender} {e.kind} {e.payload}" for e in self.heard))
        assert heard is not None
        return heard

    def of(self, kind: str, sender: str = "agent") -> list[Envelope]:
        return [each for each in self.heard if each.kind == kind and each.sender == sender]

    async def ask(self, text: str = "do it") -> str:
        """Say something to the agent; returns the id of the chat."""
        return (await self.alice.chat(text, to="agent")).id

    async def proposal(self, number: int = 1) -> Envelope:
        await until(lambda: len(self.of("mcp/proposal")) >= number)
        return self.of("mcp/proposal")[number - 1]

    async def idle(self) -> None:
        """The agent has no turn."""
        await until(lambda: self.member._current is None and self.member._queue.empty())

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
    given: dict[str, Any] = {
        "argv": (sys.executable, "-I", "-S", str(AGENT), str(folder / "script.json")),
        "folder": work,
        "gateway": gateway,
        "space": "lab",
        "token": "t-agent",
        "state_folder": folder / "state",
        "probe": False,
        "restart": QUICK,
        "limits": AcpLimits(explanation_seconds=0.05, cancel_seconds=2.0),
    }
    return AcpSettings(**(given | more))


@asynccontextmanager
async def agent_in(settings: AcpSettings) -> AsyncIterator[AcpMember]:
    """The agent as a member, while the block runs."""
    member = AcpMember(settings)
    settings.state_folder.mkdir(mode=0o700, exist_ok=True)
    try:
        await member.start()
        async with connect(
            settings.gateway,
            settings.space,
            settings.token,
            controls=member.controls,
            limits=settings.member,
        ) as space:
            work = asyncio.create_task(member.run(space))
            await asyncio.sleep(0)
            try:
                yield member
            finally:
                work.cancel()
                await asyncio.wait([work])
                if not work.cancelled() and (fault := work.exception()) is not None:
                    raise fault
    finally:
        await member.stop()


@asynccontextmanager
async def agent_space(
    folder: Path,
    *turns: list[dict[str, Any]],
    rights: list[Any] | None = None,
    people: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[AgentSpace]:
    """A gateway, the agent with this script, and alice."""
    write_script(folder, *turns, **options)
    (folder / "gateway").mkdir()
    everybody = participants(alice=["*"], agent=RIGHTS if rights is None else rights, **(people or {}))
    async with running_gateway(folder / "gateway", everybody) as gateway, AsyncExitStack() as stack:
        made = settings_for(gateway.url, folder, **(settings or {}))
        alice = await stack.enter_async_context(connect(gateway.url, "lab", "t-alice"))
        heard: list[Envelope] = []
        alice.on("*")(heard.append)
        async with bounded():
            member = await stack.enter_async_context(agent_in(made))
        yield AgentSpace(gateway, folder, made, member, alice, stack, heard)
