"""Plans of ours: laid out once, decided by people, followed by what the approver tells (decision 0193)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from moot.errors import MootError, TimedOut
from moot.participant.connection.envelope_sender import EnvelopeSender
from moot.protocol.envelope import Envelope
from moot.protocol.latest_dict import LatestDict
from moot.protocol.operation import Json

PLAN_KIND: Final = "moot/plan"
# Plans that are followed at once; the oldest are forgotten first.
MAX_FOLLOWED: Final = 100


class LaidOutPlan:
    """A plan of ours. `state` is `sent` until an approver has read it; `words` has its lines in words."""

    def __init__(self, id: str, sender: EnvelopeSender) -> None:
        self.id = id
        self.state: Literal["sent", "open", "active", "ended", "refused"] = "sent"
        self.words: tuple[str, ...] = ()
        # Why it is over, or was refused; when it ends, if people approved it.
        self.why = ""
        self.ends_at: str | None = None
        self._sender = sender
        self._changed = asyncio.Event()

    async def read(self, timeout_seconds: float) -> None:
        """Wait until an approver has read it; raises TimedOut if none did, MootError if it cannot be used."""
        await self._wait(lambda: self.state != "sent", timeout_seconds, "no approver has read the plan")
        if self.state == "refused":
            raise MootError(self.why)

    async def approved(self, timeout_seconds: float = 86_400.0) -> None:
        """Wait until people have approved it, or less of it; raises MootError if they did not."""
        await self._wait(
            lambda: self.state not in ("sent", "open"), timeout_seconds, "nobody decided the plan"
        )
        if self.state != "active":
            raise MootError(f"the plan is over: {self.why}")

    async def ended(self, timeout_seconds: float = 86_400.0) -> None:
        """Wait until it is over; `why` says why. Raises TimedOut."""
        await self._wait(
            lambda: self.state in ("ended", "refused"), timeout_seconds, "the plan has not ended"
        )

    async def withdraw(self) -> None:
        """The task is done, or there will be none: nothing is approved by the plan any more."""
        await self._sender.send_confirmed(PLAN_KIND, {"withdraw": self.id})

    async def _wait(self, is_so: Callable[[], bool], timeout_seconds: float, otherwise: str) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimedOut(f"{otherwise} within {timeout_seconds:g} s") from None

    def note(self, envelope: Envelope) -> None:
        """Take in what somebody told about it."""
        told: Json = envelope.payload.get("plan")
        if envelope.kind == "chat":
            if self.state == "sent":
                self.state, self.why = "refused", str(envelope.payload.get("text"))
        elif isinstance(told, dict) and told.get("state") in ("open", "active", "ended"):
            self.state = told["state"]
            self.why = str(told.get("why") or "")
            ends_at, words = told.get("ends_at"), told.get("words")
            self.ends_at = ends_at if isinstance(ends_at, str) else None
            self.words = tuple(map(str, words)) if isinstance(words, list) else ()
        self._changed.set()


class PlanClient:
    """Lays plans out and follows them."""

    def __init__(self, sender: EnvelopeSender) -> None:
        self._sender = sender
        self.plans: LatestDict[str, LaidOutPlan] = LatestDict(MAX_FOLLOWED)

    async def lay_out(
        self, task: str, lines: Sequence[Mapping[str, Json]], hours: float | None, member: str | None
    ) -> LaidOutPlan:
        payload: dict[str, Json] = {"task": task, "lines": [dict(line) for line in lines]}
        payload |= {} if hours is None else {"hours": hours}
        payload |= {} if member is None else {"member": member}
        sent = self._sender.send(PLAN_KIND, payload)
        # Before its echo is here: an approver may answer at once.
        plan = self.plans[sent.id] = LaidOutPlan(sent.id, self._sender)
        await self._sender.wait_for_echo(sent)
        return plan

    def observe(self, envelope: Envelope) -> None:
        told: Json = envelope.payload.get("plan") if envelope.kind == "trust/rule" else None
        named = told.get("plan") if isinstance(told, dict) else None
        for id in (named, *envelope.correlation_id):
            if isinstance(id, str) and id in self.plans:
                self.plans[id].note(envelope)
                return
