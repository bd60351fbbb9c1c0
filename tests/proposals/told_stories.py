"""Stories of proposals, played in a real space; what everybody in it heard, and what each reader makes of it.

`stories.json` holds what members do and the states that follow. A story is heard in several ways: `live`, as
it happens; `twice`, with the history after it; `by_history`, without what the gateway announces itself (a
journal holds none of that); and `late`, by somebody who joins in the middle and asks what is open.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from moot.protocol.operation import Json
from moot.protocol.payloads import GATEWAY
from moot.space.acts.proposal_listing import ProposalReader, find_proposals
from tests.space.space_driver import SpaceDriver

STORIES: list[Any] = json.loads(Path(__file__).with_name("stories.json").read_text())
_RIGHTS: dict[str, Json] = {
    "agent": ["mcp/proposal", "mcp/withdraw"],
    "helper": ["mcp/proposal", "mcp/withdraw"],
    "ana": ["*"],
    "bob": ["*"],
    "tool": [],
    "other": [],
    "watcher": ["moot/*"],
}
_QUORUM: Json = {"payload": {"method": "tools/call", "params": {"name": "deploy"}}, "approvals_needed": 2}
_ANSWER: Json = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@dataclass(frozen=True)
class Heard:
    """One message and its time; without one, only time has passed. `page`: what the gateway then says."""

    at: float
    raw: str = ""
    page: str = ""

    @property
    def envelope(self) -> Any:
        return json.loads(self.raw)


@dataclass
class ToldStory:
    """What was heard in each step, and what the gateway would tell a newcomer before it."""

    name: str
    expected: Any
    by_history: Any
    steps: list[list[Heard]] = field(default_factory=list)
    pages: list[Heard] = field(default_factory=list)
    at_gateway: dict[str, Json] = field(default_factory=dict)

    @property
    def live(self) -> list[Heard]:
        return [each for step in self.steps for each in step]

    @property
    def history(self) -> list[Heard]:
        return [each for each in self.live if not each.raw or each.envelope["from"] != GATEWAY]

    @property
    def twice(self) -> list[Heard]:
        end = self.live[-1].at
        return self.live + [Heard(end, each.raw) for each in self.history if each.raw]

    def late(self, number: int) -> list[Heard]:
        """Joined before this step."""
        return [
            self.steps[0][0],
            self.pages[number],
            *(each for step in self.steps[number + 1 :] for each in step),
        ]


def tell(story: Any) -> ToldStory:
    """Play a story in a space."""
    told = ToldStory(story["story"], story["expected"], story.get("by_history", story["expected"]))
    driver = SpaceDriver(participants=_RIGHTS, quorum=[_QUORUM])
    told.steps.append(_heard(driver, driver.join("watcher", {})["watcher"]))
    driver.enter("agent", "helper", "ana", "bob", "tool", "other")
    tools: dict[str, str] = {}
    for number, step in enumerate(story["steps"]):
        told.pages.append(_page(driver, {"after": 0}))
        driver.now += 1
        told.steps.append(_play(driver, step, number, tools))
    if "not_known" not in story["steps"][-1]:
        told.pages.append(_page(driver, {"after": 0}))
    told.at_gateway = {each["proposal_id"]: each for each in _entries(driver, list(told.expected))}
    return told


def _play(driver: SpaceDriver, step: Any, number: int, tools: dict[str, str]) -> list[Heard]:
    if "seconds" in step:
        heard = _heard(driver, driver.wait(step["seconds"])["watcher"])
        return [*heard, Heard(driver.now, page=_page(driver, {"ids": list(tools)}).page)]
    if "not_known" in step:
        page = {"kind": "moot/proposals", "payload": {"proposals": [], "not_known": step["not_known"]}}
        return [Heard(driver.now, page=json.dumps(page))]
    if "leaves" in step:
        return _heard(driver, driver.leave(step["leaves"])["watcher"])
    if "enters" in step:
        name = step["enters"]
        return _heard(driver, driver.join(name, {"as": step.get("as", name)})["watcher"])
    refusal = driver.says(step["from"], step["kind"], _payload(step, tools), **_address(driver, step, number))
    assert refusal == step.get("refused"), (step, refusal)
    return _heard(driver, driver.received["watcher"])


def _address(driver: SpaceDriver, step: Any, number: int) -> dict[str, Any]:
    id, about = step.get("id", f"e-{number}"), list(step.get("about", ()))
    if about == ["request of p1"]:
        record = driver.space.state.ledger.get("p1")
        assert record is not None
        about = [str(record.settled_by)]
    calls = step["kind"] in ("mcp/proposal", "mcp/request")
    return {"id": id, "about": about, "to": step.get("to", ["tool"] if calls else [])}


def _payload(step: Any, tools: dict[str, str]) -> Json:
    if "payload" in step or step["kind"] not in ("mcp/proposal", "mcp/request"):
        given = step.get("payload", _ANSWER if step["kind"] == "mcp/response" else {})
        jsonrpc = {"jsonrpc": "2.0", "id": 1} if step["kind"] in ("mcp/request", "mcp/response") else {}
        if given.get("method", "").startswith("notifications/"):
            jsonrpc = {"jsonrpc": "2.0"}
        return jsonrpc | given
    if step["kind"] == "mcp/proposal":
        tools[step["id"]] = step.get("tool", "write_file")
    name = tools[step["about"][0]] if step["kind"] == "mcp/request" else tools[step["id"]]
    params = {"name": name, "arguments": {"path": "a"}} | step.get("more", {})
    body = {"method": "tools/call", "params": params}
    return body if step["kind"] == "mcp/proposal" else {"jsonrpc": "2.0", "id": 1} | body


def _heard(driver: SpaceDriver, messages: Any) -> list[Heard]:
    return [Heard(driver.now, json.dumps(each)) for each in messages]


def _page(driver: SpaceDriver, question: Json) -> Heard:
    """What the watcher is told who asks; not heard by anybody else."""
    asked = {"id": f"q-{driver.now}", "kind": "moot/list-proposals", "payload": question}
    (answer,) = driver.send("watcher", asked)["watcher"]
    driver.now += 0.001
    return Heard(driver.now, page=json.dumps(answer))


def _entries(driver: SpaceDriver, ids: list[str]) -> list[Any]:
    state = driver.space.state
    reader = ProposalReader(state.roster.members["watcher"])  # type: ignore[index]
    page = find_proposals(state, reader, ids, now=driver.now).payload
    entries: list[Any] = orjson.loads(orjson.dumps(page["proposals"]))
    return entries
