"""What one receiver was notified of: a small file in `DATA/notifications`, for after a restart.

It holds only what is still open, so it never grows beyond that. It is written when a receiver has taken a
message: a gateway that is killed in between sends that message once more, with the same delivery id. Without
the file, whatever is open is sent once more; nothing else depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from moot.gateway.notifications.recipients import Subject
from moot.resilience.atomic_file import write_atomically

log = logging.getLogger(__name__)


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
