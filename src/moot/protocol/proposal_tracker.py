"""Follows the proposals of a space: envelopes in, in the order of the space, and what they changed out.

Everything that comes has been accepted by a gateway, live or out of a journal. What it announces itself
(`moot/votes`, `moot/outcome`) is in no history; so votes are counted and time is kept here as well, and what
the gateway tells counts more. Whatever comes a second time changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import ClassVar, Final, Generic, TypeVar

from moot.protocol.answer_marks import says_unknown
from moot.protocol.continuation import given_input, wanted_input
from moot.protocol.envelope import Envelope
from moot.protocol.gateway_proposal import GatewayProposal, read_budget_notes, read_effect_notes
from moot.protocol.kinds import CANCELLED
from moot.protocol.operation import JsonValue
from moot.protocol.opinion import read_opinion
from moot.protocol.origin_report import MAX_REPORT_BYTES, read_report
from moot.protocol.preview_report import read_preview
from moot.protocol.proposal_life import (
    MAX_COMMENT_CHARS,
    MAX_COMMENTS,
    REMOVED,
    ProposalComment,
    ProposalLife,
    RejectionRecord,
)

P = TypeVar("P", bound=ProposalLife)
_NEVER: Final = float("inf")


class ProposalTracker(Generic[P]):
    """The proposals that somebody knows, oldest first."""

    rejection_type: ClassVar[type[RejectionRecord]] = RejectionRecord
    # They are larger than all the rest: not for who keeps very many proposals.
    keeps_origins: ClassVar[bool] = True
    keeps_comments: ClassVar[bool] = True
    # Where they are not followed, a host may have been asked by a runtime id that it has no longer. Only who
    # was asked can answer (D-80), so a stranger's answer is that of the one host that is waited for.
    follows_runtime_ids: ClassVar[bool] = True

    def __init__(self, *, answer_seconds: float = _NEVER) -> None:
        """`answer_seconds`: how long a host may take, for who is not told of the end of that time."""
        self.answer_seconds = answer_seconds
        # Decision 0015: a gateway of Moot gives a reason for whoever does not come back.
        self.leave_reason_is_removal = True
        self._known: dict[str, P] = {}
        # Those that time can change, and when it does; and the same by time: there, what does not hold any
        # more is passed over.
        self._timed: dict[str, tuple[float, P]] = {}
        self._by_deadline: list[tuple[float, str]] = []
        # By a request that carries them out, and by the message of a rejection.
        self._requests: dict[str, list[P]] = {}
        self._rejections: dict[str, RejectionRecord] = {}
        # By the message of a comment, or of a rejection, that somebody may answer.
        self._talk: dict[str, P] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[P]:
        return iter(list(self._known.values()))

    def track(self, life: P) -> P:
        """Follow one more; one of the same id is another proposal (D-94)."""
        if life.id in self._known:
            self.untrack(life.id)
        self._known[life.id] = life
        self._index(life)
        return life

    def untrack(self, id: str) -> P:
        gone = self._known.pop(id)
        self._timed.pop(id, None)
        for request in gone.requests:
            left = [each for each in self._requests.pop(request, ()) if each is not gone]
            if left:
                self._requests[request] = left
        for each in gone.rejections:
            self._rejections.pop(each.id, None)
            self._talk.pop(each.id, None)
        for comment in gone.comments:
            self._talk.pop(comment.id, None)
        return gone

    def pending(self) -> list[P]:
        """Those that can still be decided on, oldest first; rejected ones too, until withdrawn (D-28)."""
        return [life for _, life in self._timed.values() if life.status == "pending"]

    def apply(self, envelope: Envelope, now: float, *names: str) -> list[P]:
        """What an envelope changes; a proposal itself is made and tracked by whoever knows what it wants.

        `names` are what its sender is called beside its runtime id.
        """
        who = (envelope.sender or names[0], *names) if names else (envelope.sender,)
        changed = []
        for life in self._about(envelope):
            if self._advance(life, envelope, now, who):
                self._index(life)
                changed.append(life)
        return changed

    def _about(self, envelope: Envelope) -> Iterable[P]:
        """Those that it may change."""
        payload = envelope.payload
        ids = envelope.correlation_id
        match envelope.kind:
            case "space/kick" | "system/presence":
                return self.pending()
            case "moot/votes" | "moot/outcome" | "system/error":
                ids = (_text(payload.get("proposal_id")),)
            case "mcp/request" if payload.get("method") != CANCELLED:
                pass
            case "mcp/request" | "mcp/response":
                found: list[P] = []
                for id in ids:
                    found += self._requests.get(id, ())
                return found
            case "chat":
                return [] if self._explain(envelope) else self._talked_about(ids)
        if len(ids) == 1:
            named = self._known.get(ids[0])
            return () if named is None else (named,)
        return [self._known[id] for id in dict.fromkeys(ids) if id in self._known]

    def _advance(self, life: P, envelope: Envelope, now: float, who: Sequence[str]) -> bool:
        """The transition that an envelope makes."""
        payload, given = envelope.payload, envelope.payload.get("reason")
        reason = given if isinstance(given, str) else ""
        match envelope.kind:
            case "mcp/request" if payload.get("method") == CANCELLED:
                # Whoever cancels its request gets no answer to it (MCP), done or not.
                is_last = life.requests[-1] in envelope.correlation_id
                return is_last and life.is_requested_by(who) and life.lose_track("cancelled")
            case "mcp/request":
                return self._carry_out(life, envelope, now, who)
            case "mcp/response":
                return self._apply_answer(life, envelope, who)
            case "mcp/withdraw":
                return life.is_of(who) and life.settle("withdrawn", now, envelope.id, reason or "other")
            case "mcp/reject":
                made = self.rejection_type(envelope.id, who[0], reason or "other", now)
                made = self._rejections.get(envelope.id, made)
                if not life.reject(made):
                    return False
                self._rejections[envelope.id] = made
                self._talk[envelope.id] = life
                return True
            case "chat":
                return self._comment(life, envelope, now, who[0])
            case "moot/assign":
                return life.status == "pending" and life.assign(payload.get("to"), who[0])
            case "moot/approve":
                return who[0] not in life.votes and life.set_votes([*life.votes, who[0]])
            case "moot/votes":
                exempt, needed = payload.get("exempt", ()), payload["approvals_needed"]
                life.budgets = read_budget_notes(payload.get("budgets"))
                life.effects = read_effect_notes(payload.get("effects"))
                life.counters = payload.get("counters", life.counters)
                life.passkey = payload.get("passkey") is True
                return life.count_votes(payload["approved_by"], needed, payload["approvals_missing"], exempt)
            case "moot/settle":
                return life.assess(payload.get("outcome"), who[0], payload.get("note"))
            case "moot/origins":
                return not life.is_of(who) and self._note_origins(life, envelope, who[-1])
            case "moot/opinion" if self.keeps_origins and not life.is_of(who):
                with suppress(ValueError):
                    return life.note_opinion(read_opinion(payload), who[-1])
                return False
            case "moot/preview" if self.keeps_origins and not life.is_of(who):
                with suppress(ValueError):
                    return life.note_preview(read_preview(payload), who)
                return False
            case "moot/outcome" if payload.get("outcome") == "unknown":
                life.effects = read_effect_notes(payload.get("effects"))
                # What carried it out may never have been heard here.
                life.fulfil(_text(payload.get("request_id")), "", payload.get("asked", ()), now)
                return life.lose_track(reason)
            case "space/kick":
                return _remove(life, (_text(payload.get("participant_id")),), now)
            case "system/presence" if self.leave_reason_is_removal and payload.get("event") == "leave":
                gone = payload.get("participant") or {}
                return bool(reason) and _remove(life, (_text(gone.get("id")), _text(gone.get("name"))), now)
            case "system/error" if payload.get("error") == "proposal_settled":
                # Our decision came too late: the refusal says what became of it.
                state = payload.get("state")
                return state in ("withdrawn", "expired") and life.settle(state, now)
        return False

    def _carry_out(self, life: P, envelope: Envelope, now: float, who: Sequence[str]) -> bool:
        params = envelope.payload.get("params")
        if life.status != "fulfilled":
            life.fulfil(envelope.id, who[0], envelope.to, now)
            self.note_request(life, envelope)
        elif life.fulfilled_by == "" and life.settled_by == envelope.id and given_input(params) is None:
            # The gateway told of it before the request was heard.
            life.fulfilled_by = who[0]
            life.requested_by = life.requested_by or who[0]
            self.note_request(life, envelope)
            return True
        elif (
            not life.is_of(who)
            or given_input(params) is None
            or not life.resume(envelope.id, who[0], (params or {}).get("inputResponses"))
        ):
            return False
        life.answer_by = now + self.answer_seconds
        return True

    def _apply_answer(self, life: P, envelope: Envelope, who: Sequence[str]) -> bool:
        """One answer is that of every proposal which the request carries out (decision 0015)."""
        error, result = envelope.payload.get("error"), envelope.payload.get("result")
        if life.requests[-1] not in envelope.correlation_id:
            return False
        if not self.follows_runtime_ids and len(life.waiting) == 1 and set(life.asked).isdisjoint(who):
            who = (*who, *life.waiting)
        if not life.expects_answer(who):
            return self._note_told(life, envelope, who)
        if error is not None and says_unknown(error):
            life.lose_track("host_does_not_know")
        else:
            is_one = len(life.asked) == 1 and len(self._requests[life.requests[-1]]) == 1
            failed = error is not None or (isinstance(result, dict) and result.get("isError") is True)
            life.note_answer(who, failed=failed, asks=is_one and wanted_input(result) is not None)
        self.note_answer(life, envelope)
        return True

    def _note_origins(self, life: P, envelope: Envelope, by: str) -> bool:
        """Nobody says of their own proposal where its values came from."""
        if not self.keeps_origins or len(envelope.raw) > MAX_REPORT_BYTES:
            return False
        with suppress(ValueError):
            return life.note_origins(read_report(envelope.payload), by, len(envelope.raw))
        return False

    def _note_told(self, life: P, envelope: Envelope, who: Sequence[str]) -> bool:
        """The gateway's list told what came of it; what its host said comes with the history, once."""
        if (life.answered and len(life.asked) < 2) or set(life.asked).isdisjoint(who):
            return False
        life.answered = True
        self.note_answer(life, envelope)
        return True

    def note_answer(self, life: P, envelope: Envelope) -> None:
        """A host has answered; for who keeps what it said."""

    def note_request(self, life: P, envelope: Envelope) -> None:
        """A request carries it out, or a changed version of it; for who knows what was proposed."""

    def _talked_about(self, ids: Iterable[str]) -> list[P]:
        """The proposals that a chat comments on: it names them, or what was said about them."""
        found = (self._known.get(id) or self._talk.get(id) for id in ids)
        return list({life.id: life for life in found if life is not None}.values())

    def _comment(self, life: P, envelope: Envelope, now: float, by: str) -> bool:
        text = envelope.payload.get("text")
        if not self.keeps_comments or not isinstance(text, str) or not text:
            return False
        with suppress(ValueError):
            now = datetime.fromisoformat(envelope.ts).timestamp()
        if len(life.comments) >= MAX_COMMENTS:
            self._talk.pop(life.comments[0].id, None)
        self._talk[envelope.id] = life
        return life.comment(
            ProposalComment(envelope.id, by, text[:MAX_COMMENT_CHARS], now, tuple(envelope.to))
        )

    def _explain(self, envelope: Envelope) -> bool:
        """MEW 3.3.3: a chat that refers to a rejection explains it, if its sender is the rejecter."""
        explains = False
        for id in envelope.correlation_id:
            rejection, text = self._rejections.get(id), envelope.payload.get("text")
            if rejection is not None and rejection.by == envelope.sender and isinstance(text, str):
                rejection.explain(text)
                explains = True
        return explains

    def expire(self, now: float) -> list[P]:
        """Those whose time is over: nobody decided, or nobody answered."""
        changed: list[P] = []
        while self._by_deadline and self._by_deadline[0][0] <= now:
            deadline, id = heappop(self._by_deadline)
            due, life = self._timed.get(id, (_NEVER, None))
            if life is None or due != deadline:
                continue
            # In its place: they are in the order in which they were proposed.
            self._timed[id] = (_NEVER, life)
            is_late = now >= life.expires and life.settle("expired", life.expires)
            if is_late or (now >= life.answer_by and life.lose_track("timed_out")):
                changed.append(life)
            self._index(life)
        return changed

    def _time(self, life: P, deadline: float) -> None:
        known = self._timed.get(life.id)
        self._timed[life.id] = (deadline, life)
        if known is not None and known[0] == deadline:
            return
        heappush(self._by_deadline, (deadline, life.id))
        if len(self._by_deadline) > 2 * len(self._timed) + 64:
            self._by_deadline = [(at, id) for id, (at, _) in self._timed.items()]
            heapify(self._by_deadline)

    def _index(self, life: P) -> None:
        """Note when time changes it next, and which answer does."""
        deadline = life.expires if life.status == "pending" else life.answer_by
        if life.status == "pending" or (life.outcome == "pending" and deadline != _NEVER):
            self._time(life, deadline)
        else:
            self._timed.pop(life.id, None)
        if life.requests and life not in self._requests.setdefault(life.requests[-1], []):
            self._requests[life.requests[-1]].append(life)

    # What the gateway tells when it is asked

    def restore_known(self, told: GatewayProposal, now: float) -> None:
        """Take over what the gateway says about one that is known."""
        life = self._known.get(told.proposal_id)
        if life is not None:
            with suppress(ValueError):
                life.expires = datetime.fromisoformat(told.expires_at).timestamp()
            life.restore(told, now, self.rejection_type)
            self._index(life)

    def forget(self, id: str, now: float) -> list[P]:
        """The gateway does not remember it, so it is not open."""
        life = self._known.get(id)
        if life is None or not life.settle("expired", now):
            return []
        life.forgotten = True
        self._index(life)
        return [life]


def _remove(life: ProposalLife, gone: Sequence[str], now: float) -> bool:
    """Decision 0015: what a removed member proposed is withdrawn, and its votes count no more."""
    if life.is_of(gone):
        return life.settle("withdrawn", now, reason=REMOVED)
    return life.set_votes([each for each in life.votes if each not in gone])


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
