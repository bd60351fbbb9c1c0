"""Which logs count, and which witnesses must have seen a checkpoint (c2sp.org/tlog-policy).

log example.com/log+ab12cd34+AQ…
witness ana witness.ana.example+12ab34cd+BA…  https://witness.ana.example/
witness ben witness.ben.example+34cd12ab+BA…
group two 2 ana ben
quorum two
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from moot.errors import UsageError
from moot.evidence.checkpoint import Checkpoint, cosigned_at, signers
from moot.evidence.signed_note import COSIGNATURE, ED25519, Note, NoteError, VerifierKey

MAX_POLICY_BYTES: Final = 64 << 10
_NO_WITNESS: Final = "none"
_BAD_BYTES: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")


class KnownLog(NamedTuple):
    key: VerifierKey
    url: str = ""


class Witness(NamedTuple):
    name: str
    key: VerifierKey
    url: str = ""


class Group(NamedTuple):
    """Has seen a checkpoint when so many of its members have."""

    needed: int
    members: Sequence[str]


class Policy(NamedTuple):
    logs: Sequence[KnownLog]
    witnesses: Sequence[Witness]
    groups: dict[str, Group]
    quorum: str

    def judge(self, checkpoint: Checkpoint, note: Note) -> list[str]:
        """The names of the witnesses that saw a checkpoint; raises NoteError if that is not enough."""
        found = signers(note, [log.key for log in self.logs] + [each.key for each in self.witnesses])
        if not any(key.type == ED25519 and key.name == checkpoint.origin for key in found):
            raise NoteError(f"no log that the policy knows signed the checkpoint of {checkpoint.origin}")
        saw = [each.name for each in self.witnesses if each.key in found]
        if not self._is_enough(self.quorum, saw):
            names = ", ".join(saw) or "none"
            raise NoteError(f"the policy wants the quorum {self.quorum}; of its witnesses {names} cosigned")
        return saw

    def seen_by(self, note: Note) -> dict[str, int]:
        """When each of the witnesses says that it saw a note, in seconds since 1970; raises NoteError."""
        found = signers(note, [each.key for each in self.witnesses])
        # The first of a key is the one that was verified.
        times = {(each.name, each.key_id): cosigned_at(each.bytes) for each in reversed(note.signatures)}
        return {
            each.name: times[each.key.name, each.key.key_id] for each in self.witnesses if each.key in found
        }

    def _is_enough(self, name: str, saw: Collection[str]) -> bool:
        if name == _NO_WITNESS or name in saw:
            return True
        group = self.groups.get(name)
        return group is not None and sum(self._is_enough(each, saw) for each in group.members) >= group.needed


def read_policy(file: Path) -> Policy:
    """The policy in a file; raises UsageError that names it."""
    try:
        with file.open("rb") as opened:
            return parse_policy(opened.read(MAX_POLICY_BYTES + 1))
    except OSError as fault:
        raise UsageError(f"no policy can be read from {file}: {fault.strerror}") from None
    except NoteError as fault:
        raise UsageError(f"{file}: {fault}") from None


def parse_policy(raw: bytes) -> Policy:
    """Read a policy; raises NoteError with the line that is wrong."""
    if len(raw) > MAX_POLICY_BYTES:
        raise NoteError(f"a policy has at most {MAX_POLICY_BYTES} bytes")
    # Names are bytes to this format: what is no UTF-8 stays itself.
    lines = raw.decode("utf-8", "surrogateescape").split("\n")
    reading = _Reading()
    for number, line in enumerate(lines, 1):
        words = re.split(r"[ \t]+", line.strip(" \t"))
        if not words[0] or words[0].startswith("#"):
            continue
        try:
            if _BAD_BYTES.search(line.encode("utf-8", "surrogateescape")):
                raise NoteError("there is a control character")
            reading.take_line(words)
        except NoteError as fault:
            raise NoteError(f"line {number} of the policy: {fault}") from None
    return reading.policy()


class _Reading:
    def __init__(self) -> None:
        self._logs: list[KnownLog] = []
        self._witnesses: dict[str, Witness] = {}
        self._groups: dict[str, Group] = {}
        self._quorum = ""
        # Each witness counts in one way only.
        self._used: set[str] = set()

    def take_line(self, words: list[str]) -> None:
        match words:
            case ["log", key, *url] if len(url) < 2:
                self._logs.append(KnownLog(self._new_key(key, ED25519), *url))
            case ["witness", name, key, *url] if len(url) < 2:
                self._check_new(name)
                self._witnesses[name] = Witness(name, self._new_key(key, COSIGNATURE), *url)
            case ["group", name, needed, *members] if members:
                self._check_new(name)
                self._groups[name] = Group(self._count(needed, len(members)), members)
                for member in members:
                    self._use(member)
            case ["quorum", name]:
                if self._quorum:
                    raise NoteError("there is a second quorum")
                if name != _NO_WITNESS:
                    self._use(name)
                self._quorum = name
            case _:
                raise NoteError(f"{' '.join(words)[:80]!r} is no log, witness, group or quorum")

    def policy(self) -> Policy:
        if not self._quorum:
            raise NoteError("the policy has no quorum line; `quorum none` asks for no witness")
        return Policy(self._logs, tuple(self._witnesses.values()), self._groups, self._quorum)

    def _new_key(self, text: str, type: int) -> VerifierKey:
        key = VerifierKey.parse(text)
        if key.type != type:
            raise NoteError(f"{key.name} is a key of the other sort: logs sign, witnesses cosign")
        keys = [log.key for log in self._logs] + [each.key for each in self._witnesses.values()]
        if any(key.public == other.public for other in keys):
            raise NoteError(f"the key of {key.name} stands there already")
        return key

    def _check_new(self, name: str) -> None:
        if name == _NO_WITNESS or name in self._witnesses or name in self._groups:
            raise NoteError(f"the name {name!r} is taken")

    def _use(self, name: str) -> None:
        if name not in self._witnesses and name not in self._groups:
            raise NoteError(f"{name!r} is not defined above")
        if name in self._used:
            raise NoteError(f"{name!r} counts twice")
        self._used.add(name)

    @staticmethod
    def _count(needed: str, members: int) -> int:
        count = {"any": 1, "all": members}.get(needed)
        if count is None and re.fullmatch(r"[1-9][0-9]{0,3}", needed):
            count = int(needed)
        if count is None or count > members:
            raise NoteError(f"{needed!r} of {members} members: use any, all, or a number up to {members}")
        return count
