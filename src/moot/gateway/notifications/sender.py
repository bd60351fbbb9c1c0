"""Telling one receiver: a task that looks for what there is to tell it and sends it.

The ledgers of the spaces are the queue. A receiver's task looks at them every SCAN_SECONDS for what is
open, due, not told yet and its participant's to decide, and remembers what its receiver has taken. So nothing
is lost by a receiver that is dead or slow, by a burst, or by a restart; what was decided meanwhile is
not there any more; and the handling of messages in a space knows nothing of all this.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from moot.errors import Unavailable
from moot.gateway.hosting.space_host import SpaceHost
from moot.gateway.notifications.channels import Channel, DeliveryFailed, Outcome, ReceiverGone
from moot.gateway.notifications.message import compose, describe
from moot.gateway.notifications.recipients import Subject, concerns, event_of, find_due, happened_at, was_told
from moot.gateway.notifications.schedule import QuietTimes, Schedule
from moot.protocol.dialects import DIALECTS
from moot.protocol.envelope import ANY_SIZE
from moot.protocol.origin_report import ORIGINS_KIND
from moot.protocol.patterns import Rights
from moot.protocol.proposal_life import ProposalLife
from moot.protocol.proposal_tracker import ProposalTracker
from moot.resilience.atomic_file import write_atomically
from moot.resilience.restart_loop import Backoff
from moot.space.config import Name
from moot.space.proposals.proposal_ledger import ProposalRecord
from moot.store.worker_thread import DaemonExecutor

T = TypeVar("T")

log = logging.getLogger(__name__)

# How often each receiver looks for something to tell: small beside `after_seconds`.
SCAN_SECONDS: Final = 2
# After the first failure; each further one doubles it, and jitter takes away up to half.
RETRY_FIRST_SECONDS: Final = 2
# Between two tries at most. They never end: what is still open is told when the receiver is back.
MAX_RETRY_SECONDS: Final = 300
# A receiver that asks for a longer pause (Retry-After) gets this much.
MAX_RETRY_AFTER_SECONDS: Final = 3_600
# Proposals held for one receiver at once; further ones wait in their space, and none is lost.
MAX_QUEUED: Final = 1_000
# A summary names so many, and says how many more there are.
MAX_SUMMARY_ENTRIES: Final = 10
# Of arguments that are sent, so many characters at most: what a person reads on a phone.
MAX_ARGUMENT_CHARS: Final = 500
# Proposals between two turns of others: a millisecond, or a few when all their envelopes have to be read.
_LOOKED_AT_ONCE: Final = 100


class SharedValues(Protocol):
    """Values by key. All raise Unavailable when they cannot be reached."""

    async def read(self, key: str) -> bytes | None: ...

    async def write(self, key: str, value: bytes) -> None: ...

    async def create(self, key: str, value: bytes) -> bytes:
        """Write it if there is none yet; returns what is there."""

    async def change(self, key: str, edit: Callable[[bytes | None], bytes]) -> bytes:
        """Make another value of the one that is there, which no other gateway changes meanwhile."""


class _Verdict(NamedTuple):
    """Whether a subject concerns the participant, and on what that rests: judging it reads its envelope."""

    rights: Rights
    approvals: int
    rejections: int
    givers: tuple[Name, ...]
    concerned: bool


class SenderRules(NamedTuple):
    """What one receiver is told, and when."""

    after_seconds: float
    outcome_unknown: bool
    quiet: QuietTimes | None
    include_arguments: bool = False


class Recipient(Protocol):
    """Whose notifications these are."""

    # What was told is kept for this one alone.
    owner: str

    def participant_in(self, space: str) -> str | None:
        """Who is told of what is in this space; None if nobody is."""

    async def check(self) -> None:
        """Raises ReceiverGone when nobody is told anything any more, and Unavailable."""


class NotificationSender:
    """Tells one receiver."""

    def __init__(
        self,
        name: str,
        recipient: Recipient,
        rules: SenderRules,
        channel: Channel,
        hosts: Mapping[str, SpaceHost],
        *,
        public_url: str | None,
        file: Path,
        files: DaemonExecutor,
        outcomes: Counter[Outcome],
        shared: SharedValues | None = None,
    ) -> None:
        """`public_url` is what links begin with; without one there are none. `shared` is what another gateway
        of the cluster goes on with."""
        self._name = name
        self._recipient = recipient
        self._rules = rules
        self._channel = channel
        self._hosts = hosts
        self._public_url = public_url
        self._file = file
        self._files = files
        self._outcomes = outcomes
        self._shared = shared
        self._shared_key = f"notified.{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        # Spaces of which this gateway is the one that tells, as far as this sender has noticed.
        self._told_here: set[str] = set()
        self.clock = time.time
        # How often it has looked; for whoever waits until it has.
        self.scans = 0
        self._notified: set[Subject] = set()
        self._verdicts: dict[Subject, _Verdict] = {}
        self._backoff = Backoff(RETRY_FIRST_SECONDS, MAX_RETRY_SECONDS)
        self._retry_at = 0.0
        self._schedule = Schedule(rules.quiet)

    async def run(self, stopping: asyncio.Event) -> None:
        """Look and tell until the gateway stops; raises ReceiverGone when there is nobody to tell."""
        self._notified = await self._in_thread(lambda: read_notified(self._file, self._recipient.owner))
        while not stopping.is_set():
            try:
                await self._recipient.check()
                await self._take_over()
                await self._tell_due(stopping)
            except ReceiverGone:
                raise
            except Unavailable as fault:
                # What another gateway has sent is not known: nothing is sent until it is.
                log.info("notifications wait", extra={"receiver": self._name, "why": fault.message})
            except DeliveryFailed as fault:
                self._put_off(fault)
            except Exception:
                # Or one fault of ours would silence this receiver for good.
                log.exception("notifications put off", extra={"receiver": self._name})
                self._retry_at = time.monotonic() + self._backoff.next_delay()
            self.scans += 1
            try:
                async with asyncio.timeout(SCAN_SECONDS):
                    await stopping.wait()
            except TimeoutError:
                pass

    async def _take_over(self) -> None:
        """In a cluster: whoever begins to tell of a space learns first what was told. Raises Unavailable."""
        if self._shared is None:
            return
        told_here = {space for space, host in self._hosts.items() if host.order.is_first}
        if not told_here <= self._told_here:
            self._notified |= await self._read_shared(self._shared)
        self._told_here = told_here

    async def _read_shared(self, shared: SharedValues) -> set[Subject]:
        return self._decode_shared(await shared.read(self._shared_key))

    def _decode_shared(self, found: bytes | None) -> set[Subject]:
        try:
            return decode_notified(found, self._recipient.owner) if found else set()
        except msgspec.DecodeError:
            return set()

    # What there is to tell

    def _find_due(
        self, host: SpaceHost, proposal: ProposalRecord, subject: Subject, age_seconds: float
    ) -> tuple[float, int] | None:
        """After how long it became due, and which telling of it that is."""
        after = self._rules.after_seconds
        if subject.event != "proposal.pending":
            return (after, 0) if age_seconds >= after else None
        participant = self._recipient.participant_in(subject.space) or ""
        return find_due(host.space.state.config.reminders, proposal, participant, after, age_seconds)

    async def _find_all_due(self, wall: float) -> dict[Subject, float]:
        """What is due and was not told, and since when, the oldest first, as much as is held at once."""
        found: dict[Subject, tuple[float, float]] = {}
        current: set[Subject] = set()
        told: dict[Subject, list[int]] = {}
        for each in self._notified:
            told.setdefault(each.key, []).append(each.step)
        hosts = self._readable_hosts()
        for count, (space, host, proposal) in enumerate(_proposals_of(hosts), start=1):
            if count % _LOOKED_AT_ONCE == 0:
                # Others have their turn. What changes meanwhile is looked at again before it is told.
                await asyncio.sleep(0)
            now = host.journaled.clock()
            event = event_of(proposal, now)
            if event is None or (event == "outcome.unknown" and not self._rules.outcome_unknown):
                continue
            subject = Subject(space, event, proposal.number, proposal.id)
            current.add(subject)
            since = happened_at(proposal, event)
            due = self._find_due(host, proposal, subject, now - since)
            if due is None or was_told(told.get(subject, ()), due[1]):
                continue
            if self._concerns(host, proposal, subject):
                # By the wall clock, which quiet hours go by.
                found[subject._replace(step=due[1])] = since, wall - (now - since - due[0])
        # What is over needs no memory; of a space that cannot be looked at, everything is kept.
        self._notified = {each for each in self._notified if each.key in current or each.space not in hosts}
        self._verdicts = {each: why for each, why in self._verdicts.items() if each in current}
        oldest = sorted(found, key=lambda each: (found[each][0], each))[:MAX_QUEUED]
        return {subject: found[subject][1] for subject in oldest}

    def _readable_hosts(self) -> dict[str, SpaceHost]:
        """Spaces whose proposals are known to be on disk, or will be: others may still lose theirs."""
        participant_in = self._recipient.participant_in
        return {
            space: host
            for space, host in self._hosts.items()
            if host.journal.writable
            and host.order.is_first
            # What came while it was read what was told has its turn the next time.
            and (self._shared is None or space in self._told_here)
            and participant_in(space) is not None
        }

    def _concerns(self, host: SpaceHost, proposal: ProposalRecord, subject: Subject) -> bool:
        """`concerns`, remembered for as long as the rights that it rests on are the same."""
        state, participant = host.space.state, self._recipient.participant_in(subject.space)
        if participant is None:
            return False
        member = state.roster.members.get(Name(participant))
        if member is None:
            return False
        known = self._verdicts.get(subject.key)
        givers = state.delegations.givers_to(member.name, host.journaled.clock())
        rests_on = len(proposal.approved_by), len(proposal.rejected_by), givers
        # What others may is looked at each time: they change it without this member.
        if known is None or known.rights is not member.rights or known[1:4] != rests_on or givers:
            concerned = concerns(state, proposal, subject.event, participant, givers)
            known = self._verdicts[subject.key] = _Verdict(member.rights, *rests_on, concerned)
        return known.concerned and not member.kicked

    def _current(self, subject: Subject) -> ProposalRecord | None:
        """The proposal if there still is that to tell about it."""
        host = self._readable_hosts().get(subject.space)
        proposal = None if host is None else host.space.state.ledger.get(subject.id)
        if host is None or proposal is None or proposal.number != subject.number:
            return None
        if event_of(proposal, host.journaled.clock()) != subject.event:
            return None
        return proposal if self._concerns(host, proposal, subject) else None

    # Telling

    async def _tell_due(self, stopping: asyncio.Event) -> None:
        """Send what is due; raises DeliveryFailed."""
        if time.monotonic() < self._retry_at:
            return
        wall = self.clock()
        if not self._schedule.may_send(now=time.monotonic(), wall=wall):
            return
        due = await self._find_all_due(wall)
        for subjects in self._schedule.next_messages(due, now=time.monotonic(), wall=wall):
            # Those before it took their time.
            current = {each: found for each in subjects if (found := self._current(each)) is not None}
            if current and not stopping.is_set():
                await self._tell(current)

    def _why(self, subject: Subject, proposal: ProposalRecord, participant: str) -> str | None:
        """Why its values ask, out of the history of whom this is for: the ledger does not know."""
        host = self._hosts[subject.space]
        history, members = host.delivery.history, host.space.state.roster.members.values()
        tracker = ProposalTracker[ProposalLife]()
        life = tracker.track(ProposalLife(id=proposal.id, proposer=proposal.proposer))
        mark, id = ORIGINS_KIND.encode(), proposal.id.encode()
        for entry in history.since(history.visible_since(participant), participant):
            if isinstance(entry.message, bytes) and mark in entry.message and id in entry.message:
                envelope = DIALECTS[entry.dialect].decode(entry.message, ANY_SIZE)
                if envelope.kind == ORIGINS_KIND:
                    names = [each.name for each in members if each.id == envelope.sender]
                    tracker.apply(envelope, entry.at, *names)
        return life.origins.why if life.origins is not None and life.origins.asks else None

    async def _tell(self, current: Mapping[Subject, ProposalRecord]) -> None:
        subjects = list(current)
        shows_arguments = self._rules.include_arguments and len(subjects) == 1
        participant = self._recipient.participant_in(subjects[0].space) or self._recipient.owner
        entries = [
            describe(
                subject,
                current[subject],
                public_url=self._public_url,
                max_argument_chars=MAX_ARGUMENT_CHARS if shows_arguments else None,
                why=self._why(subject, current[subject], participant) if shows_arguments else None,
            )
            for subject in subjects[:MAX_SUMMARY_ENTRIES]
        ]
        message = compose(self._name, participant, subjects, entries, self._public_url)
        await self._channel.send(message)
        self._outcomes["sent"] += 1
        self._notified.update(subjects)
        self._schedule.record_sent(time.monotonic())
        self._backoff.reset()
        log.info(
            "notification sent",
            extra={"receiver": self._name, "proposals": message.total, "delivery": message.delivery},
        )
        notified = sorted(self._notified)
        try:
            await self._in_thread(lambda: write_notified(self._file, self._recipient.owner, notified))
        except OSError as fault:
            log.warning(
                "notifications may be repeated after a restart: what was told cannot be written",
                extra={"receiver": self._name, "why": type(fault).__name__},
            )
        if self._shared is not None:
            here = self._told_here
            own = [each for each in notified if each.space in here]

            def add(found: bytes | None) -> bytes:
                # Another gateway may tell of other spaces.
                others = (each for each in self._decode_shared(found) if each.space not in here)
                return encode_notified(self._recipient.owner, [*own, *others])

            try:
                await self._shared.change(self._shared_key, add)
            except Unavailable as fault:
                log.warning(
                    "notifications may be repeated by another gateway: what was told cannot be shared",
                    extra={"receiver": self._name, "why": fault.message},
                )

    def _put_off(self, fault: DeliveryFailed) -> None:
        asked = min(fault.retry_after_seconds, MAX_RETRY_AFTER_SECONDS)
        delay = max(self._backoff.next_delay(), asked)
        self._retry_at = time.monotonic() + delay
        self._outcomes[fault.outcome] += 1
        log.warning(
            "notification not delivered, it is tried again",
            extra={"receiver": self._name, "why": fault.why, "retry_seconds": round(delay, 1)},
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """What reads or writes a file; a disk that hangs holds up this receiver alone."""
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _proposals_of(hosts: Mapping[str, SpaceHost]) -> Iterator[tuple[str, SpaceHost, ProposalRecord]]:
    for space, host in hosts.items():
        ledger = host.space.state.ledger
        for proposal in (*ledger.all_open(), *ledger.unresolved()):
            yield space, host, proposal


# What one receiver was notified of: a small file in `DATA/notifications`, for after a restart.
#
# It holds only what is still open, so it never grows beyond that. It is written when a receiver has taken a
# message: a gateway that is killed in between sends that message once more, with the same delivery id.
# Without the file, whatever is open is sent once more; nothing else depends on it.


class _NotifiedFile(msgspec.Struct, frozen=True, kw_only=True):
    participant: str
    # In the file as earlier versions wrote it.
    subjects: list[Subject] = msgspec.field(name="told")


def read_notified(file: Path, participant: str) -> set[Subject]:
    """What this participant was notified of by this receiver; nothing if it went to another one before."""
    try:
        return decode_notified(file.read_bytes(), participant)
    except FileNotFoundError:
        return set()
    except (OSError, msgspec.DecodeError) as fault:
        log.warning(
            "notifications may be repeated: what was sent cannot be read",
            extra={"file": str(file), "why": type(fault).__name__},
        )
        return set()


def write_notified(file: Path, participant: str, subjects: Iterable[Subject]) -> None:
    """Replace the file; raises OSError."""
    write_atomically(file, encode_notified(participant, subjects))


def encode_notified(participant: str, subjects: Iterable[Subject]) -> bytes:
    return msgspec.json.encode(_NotifiedFile(participant=participant, subjects=sorted(subjects)))


def decode_notified(content: bytes, participant: str) -> set[Subject]:
    """Raises msgspec.DecodeError."""
    found = msgspec.json.decode(content, type=_NotifiedFile)
    return set(found.subjects) if found.participant == participant else set()
