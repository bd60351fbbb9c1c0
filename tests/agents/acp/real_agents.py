"""Real agents from npm against a scripted model: `make acp-agents`, `make acp-agents AGENTS="codex qwen"`.

Each is started as `moot acp` starts it, probed, and told twice to create a file. The first time a person
approves and the file has to be there; the second time it is rejected, must not be there, and the agent has to
get the reason. Needs `MOOT_ACP_AGENTS`, a folder with the packages (see the Makefile). With
`MOOT_ACP_RECORD`, a folder, what was said on the wire is kept there: the recordings that
`test_recorded_agents.py` plays.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from moot.agents.acp.acp_settings import AcpSettings
from moot.participant import connect
from moot.protocol.envelope import Envelope
from tests.agents.acp.agent_space import RIGHTS, AgentSpace
from tests.agents.acp.scripted_model import ScriptedModel, scripted_model
from tests.gateway.running_gateway import participants, running_gateway
from tests.participant.watched_agent import running_member
from tests.waiting import until

RECORDER = Path(__file__).with_name("traffic_recorder.py")
# For one agent: it starts, is probed and has three turns.
SECONDS = 180.0
REASON = "not on Sundays"
# What a recording keeps of a list (of models, of commands) and of a text.
MAX_ITEMS = 6
MAX_CHARS = 400
CODEX = json.dumps(
    {
        "model": "gpt-5",
        "model_providers": {
            "fake": {
                "name": "fake",
                "base_url": "MODEL/v1",
                "wire_api": "responses",
                "env_key": "OPENAI_API_KEY",
            }
        },
    }
)
OPENCODE = json.dumps(
    {
        "model": "fake/scripted",
        "provider": {
            "fake": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": "MODEL/v1", "apiKey": "none-at-all"},
                "models": {"scripted": {}},
            }
        },
    }
)
AGENTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "claude": (
        ["{folder}/claude/node_modules/.bin/claude-agent-acp"],
        {"ANTHROPIC_API_KEY": "sk-none", "ANTHROPIC_BASE_URL": "{model}"},
    ),
    "gemini": (
        ["{folder}/gemini/node_modules/.bin/gemini", "--acp"],
        {
            "GEMINI_API_KEY": "none-at-all",
            "GOOGLE_GEMINI_BASE_URL": "{model}",
            # By default it asks a model which model to ask, and does so again when it does not understand.
            "GEMINI_MODEL": "gemini-2.5-flash",
        },
    ),
    "qwen": (
        ["{folder}/qwen/node_modules/.bin/qwen", "--acp"],
        {"OPENAI_API_KEY": "none-at-all", "OPENAI_BASE_URL": "{model}/v1", "OPENAI_MODEL": "scripted"},
    ),
    "opencode": (
        ["{folder}/opencode/node_modules/.bin/opencode", "acp"],
        {"OPENAI_API_KEY": "none-at-all", "OPENCODE_CONFIG_CONTENT": OPENCODE},
    ),
    "codex": (
        ["{folder}/codex/node_modules/.bin/codex-acp"],
        {"OPENAI_API_KEY": "none-at-all", "MODEL_PROVIDER": "fake", "CODEX_CONFIG": CODEX},
    ),
}


@asynccontextmanager
async def real_space(
    agent: str, packages: Path, model: ScriptedModel, top: Path, *, work: Path, **more: Any
) -> AsyncIterator[AgentSpace]:
    """The agent as a member, as `moot acp` runs it; the home of whoever starts it is `person` below `top`."""
    command, variables = AGENTS[agent]
    fill = {"folder": str(packages), "model": model.url}
    # Claude Code wants Node 22, which its folder has.
    path = f"{packages}/claude/node_modules/node/bin:{os.environ['PATH']}"
    work.mkdir(parents=True, exist_ok=True)
    (top / "gateway").mkdir()
    (top / "state").mkdir(mode=0o700)
    everybody = participants(alice=["*"], agent=RIGHTS, second=RIGHTS)
    async with running_gateway(top / "gateway", everybody) as gateway, AsyncExitStack() as stack:
        settings = AcpSettings(
            argv=(*more.pop("before", ()), *(word.format(**fill) for word in command)),
            folder=work,
            gateway=gateway.url,
            space="lab",
            token="t-agent",
            inherited={"PATH": path, "HOME": str(top / "person")},
            env={
                key: value.replace("{model}", model.url).replace("MODEL/", f"{model.url}/")
                for key, value in variables.items()
            },
            state_folder=top / "state",
            **more,
        )
        alice = await stack.enter_async_context(connect(gateway.url, "lab", "t-alice"))
        space = AgentSpace(gateway, top, settings, alice, stack)
        await stack.enter_async_context(running_member(space.member, settings))
        yield space


async def try_agent(name: str, packages: Path, model: ScriptedModel, folder: Path) -> None:
    recorder = (sys.executable, str(RECORDER), str(folder / "traffic.jsonl"))
    more = {"before": recorder, "probe": True, "accept_unasked": True}
    async with real_space(name, packages, model, folder, work=folder / "work", **more) as space:
        agent = space.member.agent
        print(f"{name}: {agent.process.title}: {agent.asks}", flush=True)
        await decide(space, model)
        show(space.envelopes)


async def decide(space: AgentSpace, model: ScriptedModel) -> None:
    work, alice = space.settings.folder, space.alice

    async def proposed(number: int) -> Envelope:
        def over() -> bool:
            # Every turn says something; one that goes on may do so too, such as a warning of Codex.
            answered = any(
                each.kind == "chat" and each.sender == "agent" and each.correlation_id
                for each in space.envelopes[start:]
            )
            is_idle = space.turns.current is None
            return len(space.of("mcp/proposal")) >= number or (answered and is_idle)

        start = len(space.envelopes)
        await until(over, lambda: "\n".join(f"{each.kind} {each.payload}" for each in space.envelopes[-20:]))
        assert len(space.of("mcp/proposal")) >= number, "it ended its turn without asking"
        return space.of("mcp/proposal")[-1]

    await space.ask(f"Create the file {work}/notes.txt now")
    first = await proposed(1)
    print("  proposed:", first.payload["params"]["name"], str(first.payload["params"]["arguments"])[:300])
    outcome = await alice.approve(first.id)
    print("  outcome:", outcome.is_error, outcome.text[:150].replace("\n", " | "))
    await until(lambda: (work / "notes.txt").exists())
    await until(lambda: any("Finished" in str(each.payload.get("text")) for each in space.envelopes))
    count = len(space.of("mcp/proposal"))
    await space.ask(f"Create the file {work}/other.txt now")
    second = await proposed(count + 1)
    await alice.reject(second.id, "unsafe", explanation=REASON)
    await until(lambda: was_told(model), lambda: "the model was not told the reason")
    await space.idle()
    assert not (work / "other.txt").exists()


def was_told(model: ScriptedModel) -> bool:
    return any(body and REASON in str(body) for _, body in model.asked)


def keep_recording(folder: Path, packages: Path, target: Path) -> None:
    """What was said on the wire, without anything of this machine, and with long texts cut."""
    lines = (folder / "traffic.jsonl").read_text()
    for place, name in ((folder / "work", "{work}"), (folder, "/agent"), (packages, "/packages")):
        # OpenCode names a path without its first stroke.
        lines = lines.replace(str(place), name).replace(str(place)[1:], name)
    lines = re.sub(r"[^\s\"'`]*/moot-probe-\w+", "/probe", lines)
    kept = [json.dumps(cut(json.loads(line)), ensure_ascii=False) for line in lines.splitlines()]
    target.write_text("\n".join(kept) + "\n")


def cut(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: cut(each) for key, each in value.items()}
    if isinstance(value, list):
        return [cut(each) for each in value[:MAX_ITEMS]]
    return f"{value[:MAX_CHARS]}…" if isinstance(value, str) and len(value) > MAX_CHARS else value


def show(heard: list[Envelope]) -> None:
    for each in heard:
        if each.sender == "agent" and each.kind in ("chat", "reasoning/thought", "mcp/response"):
            print(f"    {each.kind}: {str(each.payload.get('text') or each.payload.get('message'))[:160]!r}")


async def main(names: list[str]) -> int:
    packages = Path(os.environ["MOOT_ACP_AGENTS"])
    failed = []
    async with scripted_model() as model:
        for name in names or list(AGENTS):
            with tempfile.TemporaryDirectory(prefix=f"moot-{name}-", ignore_cleanup_errors=True) as folder:
                try:
                    async with asyncio.timeout(SECONDS):
                        await try_agent(name, packages, model, Path(folder))
                except (Exception, AssertionError) as fault:  # noqa: BLE001  # the next one is tried, too
                    failed.append(name)
                    print(f"{name}: FAILED {type(fault).__name__}: {str(fault)[:1500]}", flush=True)
                if recordings := os.environ.get("MOOT_ACP_RECORD"):
                    keep_recording(Path(folder), packages, Path(recordings) / f"{name}.jsonl")
            print(
                f"  the model was told the reason: {was_told(model)}; asked {len(model.asked)} times",
                flush=True,
            )
            if name in failed and os.environ.get("MOOT_ACP_SHOW"):
                for api, body in model.asked:
                    print(
                        "   ",
                        api,
                        str(body.get("messages", body.get("contents", body.get("input"))))[-600:]
                        if body
                        else "",
                        flush=True,
                    )
            model.asked.clear()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
