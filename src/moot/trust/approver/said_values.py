"""Whether people said every value of a call lately: then nothing else has to be looked at.

What a person said as a whole is theirs, whatever others wrote (decision 0179). So many calls are judged by
the chats of people alone, and what agents and tools sent is read only when a call has another value. Of the
chats, only those are looked at in which a value of the call stands letter by letter: most are never read.
What was found in them is put together when somebody asks for it. Where a context was cleared, nothing before
counts. Who needs more than this is found in the whole memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from moot.origins.argument_origins import is_choice, is_said_in, text_of_leaf
from moot.origins.call_leaves import CallLeaf, call_leaves
from moot.origins.origin_call import ArgumentOrigin, OriginCall
from moot.origins.origin_memory import OriginMemory
from moot.origins.origin_verdict import OriginVerdict, verdict_on
from moot.origins.own_words import own_words
from moot.origins.result_parts import leaves_of
from moot.origins.step_budget import VERDICT_STEPS, BudgetSpent, StepBudget
from moot.origins.text_forms import compose, fold_strictly
from moot.origins.value_keys import TARGETS, values_in
from moot.protocol.envelope import Envelope
from moot.trust.approver.kept_messages import KeptMessage

# The latest messages that are looked through, the bytes of chats among them, and what is read for one call.
MAX_SAID_MESSAGES: Final = 1_024
MAX_SAID_BYTES: Final = 500_000
MAX_READ_BYTES: Final = 16 << 10
# What is not read at once is kept with what was found of a call.
MAX_LATER_BYTES: Final = 4 << 10
# Values of a call: each is looked for in every chat.
MAX_VALUES: Final = 16
_CLEARING: Final = ("participant/clear", "participant/status")

_folded: Final = lru_cache(maxsize=MAX_SAID_MESSAGES)(fold_strictly)


class NamedValue(NamedTuple):
    """A value of a call that has to be said, and its text, also in lower case."""

    leaf: CallLeaf
    text: str
    folded: str


class SaidCall(NamedTuple):
    """A call that asks for nothing, and the chats in which people said its values, oldest first."""

    call: OriginCall
    chats: list[KeptMessage]
    now: float

    def verdict(self) -> OriginVerdict:
        memory = OriginMemory()
        for envelope, _, at in self.chats:
            memory.see(envelope, person=True, at=at)
        return verdict_on(memory, self.call, self.now)


def find_said(
    call: OriginCall, latest: Iterable[KeptMessage], whole: OriginMemory, now: float
) -> SaidCall | OriginVerdict | None:
    """That people said every value of a call, by messages from the latest on; None: look at everything.

    `whole` is the memory of everything, which knows what was rejected.
    """
    values = _values_of(call)
    if not values or len(values) > MAX_VALUES or call.traits.effect == "destroys":
        return None
    found = _chats_with({value.folded for value in values}, call.agent, latest)
    if found is None or _is_rejected(call, whole, now):
        return None
    chat_of, chats = found
    said = SaidCall(call, chats, now)
    size = sum(len(envelope.raw) for envelope, _, _ in chats)
    if size <= MAX_LATER_BYTES and all(_is_said(value, chat_of[value.folded], said) for value in values):
        return said
    if size > MAX_READ_BYTES:
        return None
    verdict = said.verdict()
    paths = {value.leaf.path for value in values}
    looked_at = [each for each in verdict.arguments if each.path in paths]
    return verdict if not verdict.asks and all(map(_is_said_as_a_whole, looked_at)) else None


def _values_of(call: OriginCall) -> list[NamedValue]:
    """The values that have to be said; none if there is something else in the call."""
    found = []
    for leaf in call_leaves(call.arguments, call.schema):
        text = text_of_leaf(leaf.value)
        if leaf.value is None or isinstance(leaf.value, bool):
            # A list of them can say anything.
            if leaf.path.endswith("]"):
                return []
        elif text.strip() and not is_choice(text, leaf.options):
            found.append(NamedValue(leaf, text, fold_strictly(text)))
    return found


def _chats_with(
    values: set[str], agent: str, latest: Iterable[KeptMessage]
) -> tuple[dict[str, KeptMessage], list[KeptMessage]] | None:
    """The latest chat of a person with each of these, and with it the one that began the task."""
    chat_of: dict[str, KeptMessage] = {}
    # By how many messages ago.
    chosen: dict[int, KeptMessage] = {}
    tasks: dict[bool, tuple[int, KeptMessage]] = {}
    missing, left = values, MAX_SAID_BYTES
    for ago, kept in enumerate(islice(latest, MAX_SAID_MESSAGES)):
        envelope, person, _ = kept
        if envelope.kind != "chat":
            if envelope.kind in _CLEARING and _may_clear(envelope):
                break
            continue
        if not person:
            continue
        left -= len(envelope.raw)
        if left < 0:
            break
        is_task = agent in envelope.to
        if is_task or not envelope.to:
            tasks.setdefault(is_task, (ago, kept))
        if missing:
            said = envelope.payload.get("text")
            text = _folded(said) if isinstance(said, str) and len(said) <= MAX_READ_BYTES else ""
            here = [value for value in missing if _has(text, value)]
            if here:
                chosen[ago] = kept
                chat_of |= dict.fromkeys(here, kept)
                missing = missing.difference(here)
        if True in tasks and not missing:
            break
    if missing:
        return None
    # What was asked of this agent comes before what was asked of all.
    if task := tasks.get(True) or tasks.get(False):
        chosen[task[0]] = task[1]
    return chat_of, [chosen[ago] for ago in sorted(chosen, reverse=True)]


def _may_clear(envelope: Envelope) -> bool:
    """Whose context was cleared was told nothing before; for all others it is in the whole memory."""
    return envelope.kind == "participant/clear" or envelope.payload.get("messages_in_context") == 0


def _has(text: str, value: str) -> bool:
    """Whether this stands in a chat, and not only inside of a longer word where it is first and last."""
    first = text.find(value)
    return first >= 0 and (_is_apart(text, value, first) or _is_apart(text, value, text.rfind(value)))


def _is_apart(text: str, value: str, at: int) -> bool:
    return not (text[at - 1 : at].isalnum() or text[at + len(value) : at + len(value) + 1].isalnum())


def _is_said(value: NamedValue, chat: KeptMessage, said: SaidCall) -> bool:
    """Whether a value is a person's by this chat, as far as that can be told without reading it all."""
    envelope, _, at = chat
    own = _own_words(envelope.payload["text"])
    return is_said_in(own, at, value.leaf, value.text, said.call, said.now)


@lru_cache(maxsize=16)
def _own_words(text: str) -> str:
    """What a person says in a chat; most calls have several values of one."""
    return compose(own_words(text).said)


def _is_rejected(call: OriginCall, whole: OriginMemory, now: float) -> bool:
    """Whether people rejected a call with one of these values, or may have."""
    if not whole.has_rejections:
        return False
    budget = StepBudget(VERDICT_STEPS)
    try:
        for leaf in leaves_of(dict(call.arguments), ""):
            found = values_in(compose(leaf.text), now, budget)
            targets = [key[1] for key, _, _ in found if key[0] in TARGETS]
            if any(whole.rejected_at(text) >= 0 for text in (leaf.text, *targets)):
                return True
    except BudgetSpent:
        return True
    return False


def _is_said_as_a_whole(each: ArgumentOrigin) -> bool:
    if each.origin != "person" or each.place is None:
        return False
    return fold_strictly(each.value) in fold_strictly(each.place.text)
