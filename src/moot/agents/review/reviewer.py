"""Asks a model about each proposal that waits for people, and says what it thinks by `moot/opinion`.

    proposal ──rules have had their time──▶ still open ──▶ model ──▶ nothing against it: silence
                                                              ├──▶ ask: moot/opinion
                                                              └──▶ no: moot/opinion, and mcp/reject if it may

It never approves. A model that is slow, down or answers nonsense leaves the proposal as it was. What people
decide is compared with what the model said, over restarts (`RuleHistory`): people who approve what it said no
to contradict it, and after some of that it rejects nothing more until its model or its guidance is another.
One no in ten is left to people though it may reject, or nobody would find out. `trust/stop` about all rules,
about it, or about what it rejected ends that, too, until somebody resumes (`trust/accept`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from moot.agents.model.agent_settings import AgentLimits
from moot.agents.model.model import Model
from moot.agents.model.model_reply import ModelFailed
from moot.agents.model.spending import Spending
from moot.agents.review.review_prompt import prompt_for, read_answer
from moot.errors import MootError
from moot.participant import MissedMessages
from moot.participant.joined_space import JoinedSpace
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json
from moot.protocol.opinion import OPINION_KIND, OPINION_REASON, OPINION_RULE, Opinion
from moot.trust.approver.rule_history import Prediction, RuleHistory
from moot.trust.approver.rule_suggester import people_among
from moot.trust.history.proposal_case import Case
from moot.trust.history.proposal_history import HistoryProposal, ProposalHistory

log = logging.getLogger(__name__)

# Proposals that are asked about at once, and that wait for that; more get no opinion.
MAX_ASKED: Final = 4
MAX_WAITING: Final = 100
# Proposals that are remembered: a few of each member and tool are told to the model.
MAX_REMEMBERED: Final = 10_000
# What was said of a proposal, as the history of rules counts it.
_NO: Final = "no"
_NOTHING: Final = "nothing"
# Of its noes, left to people though it may reject.
CHECK_SHARE: Final = 0.1
# People who approve what it said no to: after so many it rejects nothing more.
MAX_CONTRADICTIONS: Final = 3
# The longest answer of the model: people wait for nothing meanwhile.
ANSWER_SECONDS: Final = 60.0
# How long rules come first: an accepted one decides at once.
RULE_SECONDS: Final = 1.0
_STOPPED_NAME: Final = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """How a second opinion behaves. `rejects`: its no rejects, where it has the right to."""

    guidance: str = ""
    rejects: bool = False


class Reviewer:
    """The second opinion of one space; `folder` keeps what it was compared with."""

    def __init__(
        self,
        space: JoinedSpace,
        model: Model,
        settings: ReviewSettings,
        folder: Path,
        *,
        spending: Spending | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._space = space
        self._model = model
        self._settings = settings
        self._spending = spending or Spending(model.settings, AgentLimits())
        self._draw = draw
        self._ledger = ProposalHistory(max_proposals=MAX_REMEMBERED, on_change=self._compare)
        self.history = RuleHistory.open(folder)
        self._stopped = folder / _STOPPED_NAME
        self._people: frozenset[str] = frozenset()
        self._slots = asyncio.Semaphore(MAX_ASKED)
        self._looked: LatestDict[str, None] = LatestDict(MAX_REMEMBERED)
        self._waiting = 0
        self.failures = 0
        # Another model, or another guidance, begins anew.
        asked = f"{model.settings.base_url}\0{model.settings.model}\0{settings.guidance}"
        self._version = hashlib.sha256(asked.encode()).hexdigest()[:12]

        @space.tool
        def review_report() -> dict[str, Json]:
            """Reports how often people decided as the second opinion said, and whether its no rejects."""
            return self.report()

    async def run(self) -> None:
        """Look at proposals until the connection ends."""
        space = self._space
        reader = space.envelopes(own=True)
        space.roster.on_change(lambda _: self._note_people())
        await self._catch_up()
        async for envelope in reader:
            if isinstance(envelope, MissedMessages):
                await self._catch_up()
            else:
                self._process(self._with_names(envelope))

    async def _catch_up(self) -> None:
        self._note_people()
        await self._space.recall()
        await self._space.recall_origins()
        for envelope in await self._space.history():
            self._process(self._with_names(envelope))

    def _with_names(self, envelope: Envelope) -> Envelope:
        sender, *to = self._space.roster.names_of([envelope.sender, *envelope.to])
        return msgspec.structs.replace(envelope, sender=sender, to=to)

    def _process(self, envelope: Envelope) -> None:
        own = envelope.sender == self._space.name
        found = self._ledger.observe(envelope, time.time())
        match envelope.kind:
            case "mcp/proposal" if found is not None and not own and envelope.id not in self._looked:
                self._look_at(found)
            case "moot/opinion" if own:
                self._looked |= dict.fromkeys(envelope.correlation_id)
            case "trust/stop" if not own and self._means_us(envelope):
                self._stopped.touch(mode=0o600)
            case "trust/accept" if not own and envelope.payload.get("resume") is True:
                self._stopped.unlink(missing_ok=True)

    def _means_us(self, stop: Envelope) -> bool:
        rule = stop.payload.get("rule")
        if isinstance(rule, str):
            return rule == OPINION_RULE
        about = [self._ledger.get(id) for id in stop.correlation_id]
        return not about or any(each is not None and OPINION_RULE in each.rules.values() for each in about)

    # Looking

    def _look_at(self, proposal: HistoryProposal) -> None:
        self._looked[proposal.id] = None
        if not self._is_open(proposal.id) or self._waiting >= MAX_WAITING:
            return
        self._waiting += 1
        self._space.spawn(self._review(proposal.case))

    def _is_open(self, id: str) -> bool:
        """Whether it still waits for people."""
        seen = self._space.proposals.get(id)
        return seen is not None and seen.status == "pending" and not seen.rejections

    async def _review(self, case: Case) -> None:
        try:
            await asyncio.sleep(RULE_SECONDS)
            async with self._slots:
                if self._is_open(case.id):
                    await self._ask(case)
        finally:
            self._waiting -= 1

    async def _ask(self, case: Case) -> None:
        if (why := self._spending.exhausted()) is not None:
            self._fail(case, why)
            return
        seen = self._space.proposals.get(case.id)
        try:
            messages = prompt_for(
                case, None if seen is None else seen.origins, self._past(case), self._settings.guidance
            )
            async with asyncio.timeout(ANSWER_SECONDS):
                reply = await self._model.complete(messages, [])
            self._spending.add(reply)
            opinion = read_answer(reply.text, self._model.settings.model[:200])
        except (ModelFailed, TimeoutError, ValueError, RecursionError) as fault:
            self._fail(case, str(fault) or "it took too long")
            return
        if not self._is_open(case.id):
            return
        if opinion is None:
            self.history.keep_prediction(case.id, Prediction(_NOTHING, self._version, "approve"))
            return
        try:
            await self._say(case, opinion)
        except MootError as fault:
            self._fail(case, str(fault))

    def _fail(self, case: Case, why: str) -> None:
        self.failures += 1
        log.warning("no second opinion", extra={"proposal": case.id, "why": why})

    def _past(self, case: Case) -> list[HistoryProposal]:
        """What people decided about calls of the same tool by the same member."""
        return [
            each
            for each in self._ledger
            if (each.case.proposer, each.case.tool, each.case.to) == (case.proposer, case.tool, case.to)
            and each.lesson is not None
        ]

    async def _say(self, case: Case, opinion: Opinion) -> None:
        await self._space.send(OPINION_KIND, opinion.as_json(), about=case.id, confirm=True)
        if opinion.says != "no":
            return
        self.history.keep_prediction(case.id, Prediction(_NO, self._version, "reject"))
        is_check = self._draw() < CHECK_SHARE
        if is_check or self.why_not_rejecting() is not None or not self._is_open(case.id):
            return
        payload: dict[str, Json] = {"reason": OPINION_REASON, "rule": OPINION_RULE}
        sent = await self._space.send("mcp/reject", payload, to=case.proposer, about=case.id, confirm=True)
        if self._space.may("chat"):
            # MEW 3.3.3: a chat about a rejection explains it.
            await self._space.chat(opinion.text(self._space.name), format="plain", about=sent.id)

    # Measuring

    def _note_people(self) -> None:
        space = self._space
        self._people = people_among(space.roster.values(), self._people, me=space.name)

    def _compare(self, decision: HistoryProposal) -> None:
        """Somebody decided: was it a person, and as the model said?"""
        deciders = {decision.fulfilled_by, *(each.by for each in decision.rejections)}
        if self._people.isdisjoint(name for name in deciders if name):
            return
        before = self.why_not_rejecting()
        compared = self.history.compare(decision)
        if compared is None or compared.decision == decision.lesson or compared.rule != _NO:
            return
        if before is None and (why := self.why_not_rejecting()) is not None:
            log.warning("rejects nothing more", extra={"why": why})
            text = f"My no rejects nothing any more: {why}."
            self._space.spawn(self._tell(text))

    async def _tell(self, text: str) -> None:
        try:
            await self._space.chat(text)
        except MootError as fault:
            log.warning("not sent", extra={"why": str(fault)})

    def why_not_rejecting(self) -> str | None:
        """Why its no is only shown; None if it rejects."""
        contradicted = self.history.observed(_NO, version=self._version).conflicts
        if not self._settings.rejects:
            return "it was not started with --reject"
        if not self._space.may("mcp/reject"):
            return "it has no right to mcp/reject"
        if self._stopped.exists():
            return "somebody stopped it"
        if contradicted >= MAX_CONTRADICTIONS:
            return f"people approved {contradicted} calls that it said no to; change its guidance or model"
        return None

    def report(self) -> dict[str, Json]:
        why = self.why_not_rejecting()
        records = {word: self.history.observed(word, version=self._version) for word in (_NO, _NOTHING)}
        return {
            "rejects": why is None,
            "why_not": why,
            "failures": self.failures,
            **{
                word: {"agreements": each.agreements, "conflicts": each.conflicts}
                for word, each in records.items()
            },
        }
