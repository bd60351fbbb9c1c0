"""Approving what takes a passkey: a browser has it, so the shell hands a link and waits."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from moot.errors import PasskeyRequired, TimedOut
from moot.operations.operation import ClientContext, OperationResult, short_id

if TYPE_CHECKING:
    from moot.participant import SeenProposal

# Somebody opens a page, reads the call and touches a key.
WAIT_SECONDS: Final = 600.0
_LOOPBACK: Final = re.compile(r"//(127\.[\d.]+|\[::1\])(?=[:/]|$)")


def proposal_address(context: ClientContext, seen: SeenProposal) -> str:
    """Where the console shows it; on this machine by its name, since an address has no passkeys."""
    url = _LOOPBACK.sub("//localhost", context.console_url.rstrip("/"))
    url = re.sub(r"^ws(s?)://", r"http\1://", url)
    space = context.space.space or ""
    return f"{url}/#/{quote(space, safe='')}/approvals/{quote(seen.id, safe='')}"


async def approve_in_console(context: ClientContext, seen: SeenProposal) -> OperationResult:
    """Say where to approve it, and wait until somebody has. Raises TimedOut, and PasskeyRequired where
    nothing can be waited for."""
    address = proposal_address(context, seen) if context.console_url else "the console"
    text = f"{short_id(seen.id)} is approved with a passkey: open {address}"
    if context.on_waiting is None:
        raise PasskeyRequired(text, proposal_id=seen.id)
    context.on_waiting(f"{text}\nwaiting until it is decided there (Ctrl-C stops waiting, not the proposal)")
    seconds = context.timeout_seconds or WAIT_SECONDS
    decided = asyncio.Event()
    seen.watchers.append(decided.set)
    try:
        async with asyncio.timeout(seconds):
            while not seen.is_over:
                decided.clear()
                await decided.wait()
    except TimeoutError:
        raise TimedOut(
            f"nobody approved {short_id(seen.id)} within {seconds:g} s; it is still open"
        ) from None
    finally:
        seen.watchers.remove(decided.set)
    value = {"proposal_id": seen.id, "status": seen.status, "outcome": seen.outcome, "by": seen.fulfilled_by}
    return OperationResult(
        value, [f"{short_id(seen.id)}: {seen.state_text}"], 0 if seen.outcome == "done" else 1
    )
