"""What `moot/opinion` says of a proposal: a model's no, or that a person should look, in one sentence.

It decides nothing and changes no state. It comes from another member, so it is bounded here, and what does
not fit is no opinion. Where its sender also rejects, the rejection names `OPINION_RULE` in place of a rule:
nobody takes it for the word of a person.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from moot.protocol.operation import Json

OPINION_KIND: Final = "moot/opinion"
OPINION_RULE: Final = "moot/opinion"
OPINION_REASON: Final = "second_opinion"
MAX_BECAUSE_CHARS: Final = 200


class Opinion(msgspec.Struct, frozen=True, omit_defaults=True):
    """`because` is the model's own sentence: nobody else stands behind it."""

    says: Literal["no", "ask"]
    because: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BECAUSE_CHARS)]
    # Which model, as its operator calls it.
    model: Annotated[str, msgspec.Meta(max_length=200)] = ""

    def text(self, by: str) -> str:
        """For people, marked as what it is."""
        word = "no" if self.says == "no" else "ask a person"
        return f"Second opinion of {by}, in a model's words: {word}, because {self.because}"

    def as_json(self) -> dict[str, Json]:
        """As it is sent."""
        found: dict[str, Json] = msgspec.to_builtins(self)
        return found


def read_opinion(payload: Json) -> Opinion:
    """Raises ValueError, with what is wrong."""
    try:
        opinion = msgspec.convert(payload, Opinion)
    except msgspec.ValidationError as fault:
        raise ValueError(str(fault)) from None
    if not opinion.because.isprintable() or not opinion.model.isprintable():
        raise ValueError("because and model are plain text in one line")
    return opinion
