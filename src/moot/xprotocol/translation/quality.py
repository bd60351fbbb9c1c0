"""How well a description tells an agent what a tool is for: five steps of 0.20 (XP 4.6, D-62).

The document names the steps; the word lists that decide them are ours and stand here in full. They are
English: a description in another language gets its steps for length and for what it does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moot.xprotocol.search.name_words import ascii_lower, inflected, sentence_words, singular, vocabulary

ENOUGH_CHARS: Final = 50

# What tools do, in the form of a command. Some are nouns too (`list`, `query`); that is the price of a list.
ACTION_VERBS: Final = vocabulary(
    "accept access activate add adjust aggregate allow analyse analyze annotate append apply approve",
    "archive ask assign attach audit authenticate block book browse build buy calculate call cancel",
    "capture change check classify clean clear click clone close collect combine commit compare",
    "compile compress compute configure confirm connect convert copy count crawl create cut",
    "deactivate debug decode decrypt define delete deploy describe destroy detect disable disconnect",
    "discover dispatch display download draw drop dump duplicate edit embed emit enable encode",
    "encrypt end enrich enter erase establish estimate evaluate execute expand expire explain explore",
    "export expose extract fetch fill filter find finish fix flush follow format forward generate get",
    "give grant group hide highlight identify import index inform initialise initialize inject insert",
    "inspect install invite invoke join kill launch learn list listen load locate lock log login",
    "logout look lookup make map mark measure merge migrate mint modify monitor mount move mute",
    "navigate normalise normalize notify obtain open optimise optimize order pack parse patch pause",
    "perform pick pin ping place plan play plot poll post predict prepare press preview print produce",
    "promote protect provide publish pull purchase push put quantify query read receive recommend",
    "record redirect refactor refresh register reject release reload remember remind remove rename",
    "render reopen reorder repair repeat replace reply report request rerun reserve reset resize",
    "resolve respond restart restore resume retrieve retry return reverse review revoke rewrite",
    "rotate run sanitise sanitize save scaffold scan schedule scrape scroll search select send serve",
    "set share show shut sign simulate sleep snap solve sort spawn speak split start stop store",
    "stream submit subscribe subtract suggest summarise summarize suspend swap switch sync synthesise",
    "synthesize tag take terminate test think toggle tokenise tokenize trace track train transcribe",
    "transfer transform translate trigger trim truncate tune tweet type unarchive unassign unblock",
    "undo uninstall unlock unmount unpin unset unsubscribe update upgrade upload validate verify view",
    "visit visualise visualize vote wait watch withdraw write zip",
)
_ACTION_FORMS: Final = frozenset(form for verb in ACTION_VERBS for form in inflected(verb))

# XP 4.6: these three, as words of their own.
VAGUE_PHRASES: Final = ("does something", "handles", "manages")
_VAGUE: Final = re.compile(r"\b(?:" + "|".join(VAGUE_PHRASES) + r")\b")

# What a sentence about when to use a tool looks like.
GUIDANCE: Final = (
    r"use (?:this|it|the|with|only|for|when|if|to|in|instead)\b",
    r"used? (?:to|for|when|if|by|in)\b",
    r"useful (?:to|for|when|if|in)\b",
    r"(?:ideal|intended|meant|suitable|best|helpful|handy|great|perfect|designed) (?:to|for|when|if|used)\b",
    r"(?:call|invoke|run|prefer|choose) this\b",
    r"(?:when|whenever|if) (?:you|the user|users|a user|the agent|an agent|asked|needed|there)\b",
    r"(?:do not|don't|never|avoid|should not|must not) (?:use|using|call|calling)\b",
    r"(?:should|must|can|may) be (?:used|called)\b",
    r"(?:before|after) (?:you|using|calling|running)\b",
    r"instead of\b",
    r"when to use\b",
)
_GUIDANCE: Final = re.compile(r"\b(?:" + "|".join(GUIDANCE) + ")")
_SPACES: Final = re.compile(r"[ \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Quality:
    """A score of 0.0, 0.2 … 1.0, and what a better description would have."""

    score: float
    lacks: tuple[str, ...]

    @property
    def issue(self) -> str:
        """For the announce and the log: why agents will not find this, and so what to mend."""
        return "too vague for agents to find: " + "; ".join(self.lacks) if self.lacks else ""


def quality_of(description: str, data_subjects: Iterable[str]) -> Quality:
    """D-62: the steps that the effective description reaches; without any text, none at all."""
    text = _SPACES.sub(" ", ascii_lower(description)).strip()
    if not text:
        return Quality(0.0, ("there is no description",))
    words = sentence_words(text)
    steps = (
        (
            len(description.strip()) >= ENOUGH_CHARS,
            f"it has fewer than {ENOUGH_CHARS} characters",
        ),
        (not _ACTION_FORMS.isdisjoint(words), "it has no verb that says what is done"),
        (_names_subject(text, words, data_subjects), "it does not name what the tool works on"),
        (_GUIDANCE.search(text) is not None, "it does not say when to use the tool"),
        (_VAGUE.search(text) is None, f"it says one of: {', '.join(VAGUE_PHRASES)}"),
    )
    # A whole number of fifths: 0.1 + 0.2 would miss a threshold of 0.3.
    score = sum(reached for reached, _ in steps) / len(steps)
    return Quality(score, tuple(lack for reached, lack in steps if not reached))


def _names_subject(text: str, words: list[str], data_subjects: Iterable[str]) -> bool:
    known = {singular(word) for word in words}
    for subject in data_subjects:
        lowered = ascii_lower(subject)
        # Text without spaces between words, and subjects of several words, are looked for as they stand.
        if singular(lowered) in known or (
            (not lowered.isalnum() or not lowered.isascii()) and lowered in text
        ):
            return True
    return False
