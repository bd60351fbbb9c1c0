"""Where the values of a proposal came from, for people: in the words of who found it out, with how long ago.

No report: nothing is said, for nothing is known. The choices of who endorses a value are here, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from moot.operations.operation import short_id
from moot.protocol.operation import Json
from moot.protocol.origin_report import ENDORSE_SECONDS, UNCONFIRMED, ArgumentReport, OriginReport
from moot.protocol.proposal_life import ProposalLife

_CUT: Final = "…"
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def ago(seconds: float) -> str:
    """How long ago something was."""
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {word} ago"
    return "just now" if seconds < 5 else f"{int(seconds)} s ago"


def caution_lines(seen: ProposalLife) -> list[str]:
    """The sentence for the top of a decision, what would leave the space, and what a model thinks of it."""
    report = seen.origins
    asks = report is not None and report.asks
    texts = [report.why, *(each.text for each in report.private)] if report is not None and asks else []
    return [*(text for text in dict.fromkeys(texts) if text), *seen.opinion_texts]


def asks_for(argument: ArgumentReport) -> bool:
    """Whether it deserves a look: it steers, and nobody here stands behind it."""
    return argument.steers and argument.origin in UNCONFIRMED


class OriginNotes:
    """What was found, handed out argument by argument; nothing is left out."""

    def __init__(self, report: OriginReport | None, viewers: Collection[str], *, with_places: bool) -> None:
        self._left = list(report.arguments) if report is not None else []
        self._more = report.more if report is not None else 0
        self._viewers = viewers
        self._with_places = with_places

    def take_argument(self, name: str) -> Iterator[tuple[ArgumentReport, list[str]]]:
        """What was found of this argument and of everything in it, each with lines for it."""
        for each in list(self._left):
            if each.path == name or each.path.startswith((f"{name}.", f"{name}[", f"{name} (")):
                self._left.remove(each)
                yield each, self._lines(each, "" if each.path == name else f"{each.path}: ")

    def take_rest(self) -> Iterator[tuple[ArgumentReport, list[str]]]:
        """What belongs to no argument that was asked for."""
        for each in self._left:
            yield each, self._lines(each, f"{each.path}: ")
        self._left = []

    def _lines(self, argument: ArgumentReport, label: str) -> list[str]:
        when = "" if argument.at is None else f" · {ago(max(0.0, time.time() - argument.at))}"
        lines = [f"{label}{argument.text_for(self._viewers)}{when}"]
        if self._with_places and argument.envelope:
            excerpt = f"“{argument.excerpt}”" if argument.excerpt else argument.place
            lines.append(f"  {excerpt} [{short_id(argument.envelope)}]")
        return lines


class EndorseChoice(msgspec.Struct, frozen=True):
    """One thing that a person can confirm or take back, and the `moot/endorse` that does it."""

    text: str
    payload: dict[str, Json]


def endorse_choices(seen: ProposalLife, arguments: Json, now: datetime) -> list[EndorseChoice]:
    """Each value that nobody here stands behind, by itself or by its source; and what was endorsed."""
    report = seen.origins
    if report is None:
        return []
    until = min(_tonight(now), now.astimezone() + timedelta(seconds=ENDORSE_SECONDS))
    bounds: dict[str, Json] = {
        **({"task": report.task} if report.task else {}),
        "member": seen.proposer_name or seen.proposer,
        "until": until.isoformat(),
    }
    end = "tonight" if until == _tonight(now) else f"{until:%H:%M}"
    scope = f"for this task until {end}" if report.task else f"until {end}"
    found: dict[str, EndorseChoice] = {}
    for each in report.arguments:
        if each.endorsement:
            text = f"Revoke: {each.path}: {each.text}"
            found.setdefault(each.endorsement, EndorseChoice(text, {"revoke": each.endorsement}))
        if each.origin not in UNCONFIRMED or not each.steers:
            # What steers nothing asks nobody.
            continue
        value = exact_value(each, arguments)
        if value:
            text = f"Endorse {each.path} = “{value}” {scope}"
            found.setdefault(f"={value}", EndorseChoice(text, {"value": value, **bounds}))
        if each.envelope:
            text = f"Endorse what message {short_id(each.envelope)} says {scope}"
            found.setdefault(f"#{each.envelope}", EndorseChoice(text, {"source": each.envelope, **bounds}))
    return list(found.values())


def exact_value(argument: ArgumentReport, arguments: Json) -> str:
    """The value to the last character, out of the call where the report cut it; empty if it is not known."""
    leaf: Json = arguments
    for step in _STEP.finditer(argument.path):
        key, at = step.groups()
        if isinstance(leaf, dict) and at is None:
            leaf = leaf.get(key)
        elif isinstance(leaf, list) and at is not None and int(at) < len(leaf):
            leaf = leaf[int(at)]
        else:
            leaf = None
    whole = " ".join(leaf.split()) if isinstance(leaf, str) else ""
    if whole == argument.value and isinstance(leaf, str):
        return leaf
    if not argument.value.endswith(_CUT):
        return argument.value
    return leaf if isinstance(leaf, str) and whole.startswith(argument.value[:-1]) else ""


def _tonight(now: datetime) -> datetime:
    """The end of the day where the person is."""
    return now.astimezone().replace(hour=23, minute=59, second=59, microsecond=0)
