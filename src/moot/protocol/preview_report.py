"""What `moot/preview` says of a proposed call: what it did in a preview, without what the files hold.

Everybody in the space reads it, so it names paths and counts lines, and no more. Whoever may ask for the rest
asks the member that would carry the call out, by the method `moot/preview`. With an `effect` the call is
bound: approving applies that effect or nothing; `why` says why there is none. With a `plan` it is what the
server says itself that it would do, and `effect` is the hash of that (decision 0277). It comes from another
member, so it is bounded here, and what does not fit is no preview.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from moot.protocol.hidden_text import show_hidden
from moot.protocol.operation import Json

PREVIEW_KIND: Final = "moot/preview"
# Methods of the member that made it: all of a preview, and taking back what was applied.
PREVIEW_METHOD: Final = "moot/preview"
UNDO_METHOD: Final = "moot/undo"
# In `_meta` of a result: which effect was applied, or taken back.
EFFECT_KEY: Final = "moot/effect"
# Paths that one report names; it says how many more there are.
MAX_TOLD_CHANGES: Final = 100
MAX_TRIED: Final = 20
MAX_PLAN_LINES: Final = 100
MAX_TEXT_CHARS: Final = 1_000

_Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class ToldChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=5_000)]
    what: Literal["created", "deleted", "changed", "mode", "replaced"]
    # What is there now, or was.
    kind: Literal["file", "folder", "link"] = "file"
    # Lines added and removed; None: it is no text, or too long.
    lines: tuple[_Count, _Count] | None = None
    size: _Count = 0
    # In octal digits, where it changes or is new.
    mode: Annotated[str, msgspec.Meta(pattern=r"^[0-7]{1,4}$")] = ""

    def text(self) -> str:
        """For people."""
        path = show_hidden(self.path) + ("/" if self.kind == "folder" else "")
        verb = {
            "created": "creates",
            "deleted": "deletes",
            "changed": "changes",
            "mode": "sets the mode of",
            "replaced": "replaces",
        }[self.what]
        if self.what == "mode":
            return f"{verb} {path} to {self.mode}"
        if self.kind == "link":
            return f"{verb} the link {path}"
        if self.kind == "folder" or self.what == "deleted":
            return f"{verb} {path}"
        lines = f"{self.size:,} bytes" if self.lines is None else f"+{self.lines[0]} −{self.lines[1]}"
        return f"{verb} {path}, {lines}"


class PreviewReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """`effect` is the hash of the effect that approving applies; empty: approving runs the call itself."""

    effect: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?$")] = ""
    why: _Text = ""
    changes: Annotated[tuple[ToldChange, ...], msgspec.Meta(max_length=MAX_TOLD_CHANGES)] = ()
    more: _Count = 0
    # Hosts that it wanted to connect to, and did not reach.
    tried: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_TRIED)] = ()
    # What its server says that it would do, in place of changes; None: this is no plan.
    plan: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=MAX_PLAN_LINES)] | None = None

    @property
    def can_be_undone(self) -> bool:
        """Whether what approving does can be taken back, while files are as it left them."""
        return bool(self.effect) and self.plan is None

    def lines(self) -> list[str]:
        """For people, wherever they read it: a command is for whoever shows this in a shell to add."""
        tried = [f"preview: wanted to connect to {show_hidden(each)}" for each in self.tried]
        if not self.effect:
            return [f"no preview that binds: {show_hidden(self.why)}; approving runs the call itself", *tried]
        more = [f"preview: and {self.more} more"] if self.more else []
        if self.plan is not None:
            planned = [f"its server plans: {show_hidden(each)}" for each in self.plan or ("nothing",)]
            end = "approving makes the call only while its server plans exactly this"
            return [*planned, *more, "nothing was tried: these are the words of the server", end]
        found = [f"preview: {each.text()}" for each in self.changes] or ["preview: changes nothing"]
        end = "approving applies exactly this or nothing; it can be undone while files are as it left them"
        return [*found, *more, *tried, end]

    def as_json(self) -> dict[str, Json]:
        """As it is sent: also in words, for faces that have none of their own."""
        found: dict[str, Json] = msgspec.to_builtins(self)
        return found | {"text": self.lines()}


def read_preview(payload: Json) -> PreviewReport:
    """Raises ValueError, with what is wrong."""
    try:
        report = msgspec.convert(payload, PreviewReport)
    except msgspec.ValidationError as fault:
        raise ValueError(str(fault)) from None
    if not report.effect and not report.why:
        raise ValueError("it holds an effect, or why there is none")
    return report
