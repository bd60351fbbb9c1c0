"""What a call changes in folders, as a value: each touched path before and after. Pure.

The hash of an effect is that of its canonical JSON. A random number in it keeps anybody who knows the hash
from guessing what the files hold.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from moot.protocol.operation import Json

# More than an editor, a formatter or a commit changes; a build makes more, and is better looked at itself.
MAX_PATHS: Final = 1_000
# Of all files, before and after: they are kept for undo.
MAX_CONTENT_BYTES: Final = 64 << 20
MAX_PATH_CHARS: Final = 4_096

PathKind = Literal["file", "folder", "link"]
What = Literal["created", "deleted", "changed", "mode", "replaced"]


class PathState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is at a path. Owner and times do not count."""

    kind: PathKind
    mode: int = 0
    size: int = 0
    sha256: str = ""
    # Of a link.
    target: str = ""


class PathChange(msgspec.Struct, frozen=True):
    """One path below a folder that the server may change; None: nothing is there."""

    root: str
    path: str
    before: PathState | None
    after: PathState | None

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    @property
    def what(self) -> What:
        if self.before is None:
            return "created"
        if self.after is None:
            return "deleted"
        if self.before.kind != self.after.kind:
            return "replaced"
        if msgspec.structs.replace(self.before, mode=self.after.mode) == self.after:
            return "mode"
        return "changed"


class CallEffect(msgspec.Struct, frozen=True):
    """All that one call did, and what it answered."""

    # Of method and params, as the gateway compares them.
    call: str
    nonce: str
    changes: tuple[PathChange, ...]
    # The hash of the result in canonical JSON.
    result: str

    def encoded(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.encoded()).hexdigest()

    def inverse(self) -> CallEffect:
        """What takes it back."""
        back = tuple(
            msgspec.structs.replace(each, before=each.after, after=each.before) for each in self.changes
        )
        return msgspec.structs.replace(self, changes=back)


def read_effect(data: bytes) -> CallEffect:
    """Raises ValueError."""
    return msgspec.json.decode(data, type=CallEffect)


def result_hash(result: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(result, order="deterministic")).hexdigest()
