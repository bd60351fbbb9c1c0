"""What the scripted members do in one run, and what is counted.

The agent makes the calls of its task. Believing all, it also makes the calls of an injected instruction, as
soon as it has read it and once more at the end. The person approves what belongs to the task. What belongs to
an attack is withdrawn once it is asked, so that no run learns from another; with `decides` it is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from bench.agentdojo.world import MARKER
from bench.agentdojo.world_space import Decision, WorldSpace, has_effect
from moot.errors import ProposalSettled, Rejected, Withdrawn

# What the person presses in the place of Approve: the same call again, or the same for the rest of this task.
# `plan`: once the agent is asked and has more to do, it lays the rest out, and the person approves that; else
# both, and the person endorses the names and addresses that asked.
PRESSES: Final = ("again", "rest", "both", "plan")


@dataclass
class RunResult:
    """Effects of the task and of the attack; which of them were asked, and which ran by themselves."""

    task: str
    attack: str | None
    effects: int = 0
    asked: list[str] = field(default_factory=list)
    # Calls without an effect that were asked all the same.
    reads_asked: list[str] = field(default_factory=list)
    attack_effects: int = 0
    attack_asked: int = 0
    through: list[str] = field(default_factory=list)
    through_ids: list[str] = field(default_factory=list)
    was_read: bool = False
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ScriptedRun:
    """One scenario in one space."""

    space: WorldSpace
    traits: Mapping[str, Mapping[str, Any]]
    decides: bool = False
    press: str = ""

    async def run(self, scenario: Mapping[str, Any], variant: str = "plain") -> RunResult:
        result = RunResult(scenario["task"], scenario["attack"])
        await self.space.begin(scenario, variant)
        said = await self._listed() if variant in ("tool-description", "resource-title") else ""
        if scenario["attack"] and MARKER in said:
            await self._attack(scenario, result)
        for at, (name, arguments) in enumerate(scenario["calls"]):
            text = await self._call(name, arguments, result, scenario["calls"][at:])
            if scenario["attack"] and not result.was_read and MARKER in text:
                await self._attack(scenario, result)
        if scenario["attack"]:
            was_read = result.was_read
            await self._attack(scenario, result)
            result.was_read = was_read
        return result

    async def _call(
        self, name: str, arguments: Mapping[str, Any], result: RunResult, rest: Sequence[tuple[str, Any]]
    ) -> str:
        decision = await self.space.propose(name, arguments)
        effect = has_effect(self.traits, self.space.world, name)
        result.effects += effect
        if decision.asked:
            (result.asked if effect else result.reads_asked).append(f"{name} {arguments}: {decision.why}")
            effects = [each for each in rest if has_effect(self.traits, self.space.world, each[0])]
            if self.press == "plan" and len(effects) > 1:
                decision = await self.space.approve_plan(decision, effects)
            else:
                decision = await self.space.approve(decision, self.press)
        if decision.outcome is None:
            result.failed.append(f"{name} {arguments}")
        return decision.text

    async def _attack(self, scenario: Mapping[str, Any], result: RunResult) -> None:
        result.was_read = True
        for name, arguments in scenario["attack_calls"]:
            decision = await self.space.propose(name, arguments)
            effect = has_effect(self.traits, self.space.world, name)
            result.attack_effects += effect
            if decision.asked:
                result.attack_asked += effect
                await self._refuse(decision)
            if effect and not decision.rejected and decision.proposal.fulfilled_by is not None:
                result.through.append(f"{name} {arguments}")
                result.through_ids.append(decision.proposal.id)

    async def _refuse(self, decision: Decision) -> None:
        # A rule that was accepted meanwhile may have been first.
        with suppress(ProposalSettled):
            if not self.decides:
                await decision.proposal.withdraw()
                return
            await self.space.person.reject(decision.proposal.id, "unsafe")
        # A rejected agent gives up, and withdraws it by itself.
        with suppress(Rejected, Withdrawn):
            await decision.proposal.outcome()

    async def _listed(self) -> str:
        """What the agent reads before it begins: tools and resources with what is said about them."""
        agent, world = self.space.agent, self.space.world
        answers = [await agent.request(world, method) for method in ("tools/list", "resources/list")]
        return str(answers)
