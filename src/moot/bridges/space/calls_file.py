"""Proposed calls that outlive a process: whoever restarts `moot mcp` can tell what became of them.

A proposal stays in the space when the client is closed or killed. The gateway tells what became of it, but of
a settled one it keeps no arguments. So each call is written down here before it is proposed, and removed when
a client was given its result. A client that polls it as a task may ask again: those stay, with their result.
The file is for its owner alone: arguments may be private.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from moot.errors import McpError
from moot.mcp.downstream.backend import PendingCall
from moot.participant.decisions.seen_proposal import RecordedProposal
from moot.private_files import lock_file, open_private
from moot.protocol import strict_json
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)

# The oldest go first. A member may have 256 open proposals, of 4 MiB together.
MAX_CALLS: Final = 1_000
MAX_BYTES: Final = 16 << 20
# Of the result of a task. A larger one is not kept over a restart; the gateway's history may have it.
MAX_RESULT_BYTES: Final = 1 << 20


class RecordedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call that a client polls as a task, until it may be forgotten (seconds since 1970)."""

    result: dict[str, Any] | None = None
    # Code, message and data of its error.
    error: tuple[int, str, Any] | None = None
    note: str
    withdrawn: bool = False
    until: float


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the proposal that it became, and the call as the client made it."""

    proposal: RecordedProposal
    # The name or URI by which the client called, and its params.
    what: str
    params: dict[str, Any]
    # The client's own key for this call; empty: none.
    key: str = ""
    # None while no client was given it: the gateway tells what became of it.
    outcome: RecordedOutcome | None = None

    @property
    def handle(self) -> str:
        return self.proposal.id


def outcome_of(pending: PendingCall, *, until: float) -> RecordedOutcome | None:
    """What came of a finished call, to be written down; None if it is too large for that."""
    outcome = pending.outcome()
    if isinstance(outcome, McpError):
        error = (outcome.code, outcome.message, outcome.data)
        made = RecordedOutcome(error=error, note=pending.note, withdrawn=pending.withdrawn, until=until)
    else:
        made = RecordedOutcome(result=outcome, note=pending.note, withdrawn=pending.withdrawn, until=until)
    return made if len(strict_json.encode(msgspec.to_builtins(made))) <= MAX_RESULT_BYTES else None


class _Content(msgspec.Struct, kw_only=True):
    version: int = 1
    calls: list[RecordedCall] = []


_decoder = msgspec.json.Decoder(_Content)


def calls_path(state: Path, gateway: str, space: str, member: str) -> Path:
    """The file with the calls of one member of a space, below a folder for state."""
    which = sha256(f"{gateway.rstrip('/')}\0{space}\0{member}".encode()).hexdigest()[:16]
    return state / "moot" / "calls" / f"{which}.json"


class CallsFile:
    """The calls of one member on disk; several processes may share it. Problems are logged, nothing more:
    without the file the gateway still tells which proposals are open."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[RecordedCall]:
        if not self._path.exists():
            return []
        try:
            with lock_file(self._path):
                return self._read()
        except OSError as fault:
            self._report(fault)
            return []

    def add(self, call: RecordedCall) -> None:
        """On disk when this returns."""
        self._change(lambda calls: [*calls, call][-MAX_CALLS:])

    def replace(self, call: RecordedCall) -> None:
        """Put a call in the place of the one with its handle."""
        self._change(lambda calls: [*(each for each in calls if each.handle != call.handle), call])

    def remove(self, handle: str) -> None:
        self._change(lambda calls: [call for call in calls if call.handle != handle])

    def _change(self, change: Callable[[list[RecordedCall]], list[RecordedCall]]) -> None:
        try:
            with lock_file(self._path):
                calls = self._read()
                changed = change(calls)
                if changed == calls:
                    return
                data = strict_json.encode(msgspec.to_builtins(_Content(calls=changed)))
                while len(data) > MAX_BYTES and len(changed) > 1:
                    changed = changed[len(changed) // 2 :]
                    data = strict_json.encode(msgspec.to_builtins(_Content(calls=changed)))
                write_atomically(self._path, data)
        except OSError as fault:
            self._report(fault)

    def _read(self) -> list[RecordedCall]:
        try:
            with open(self._path, "rb", opener=open_private) as file:
                data = file.read(MAX_BYTES + 1)
            return _decoder.decode(data).calls
        except FileNotFoundError:
            return []
        except msgspec.DecodeError as fault:
            log.warning("unreadable calls", extra={"path": str(self._path), "why": str(fault)})
            return []

    def _report(self, fault: OSError) -> None:
        log.warning("calls are not kept", extra={"path": str(self._path), "why": fault.strerror})
