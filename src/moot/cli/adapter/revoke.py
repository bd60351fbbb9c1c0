"""`xprotocol-adapter revoke`: revokes a key for good."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.adapter import Misused
from moot.cli.adapter.options import (
    add_config,
    add_publish,
    command,
    load_sections_if_any,
    relays_of,
    report,
)
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

if TYPE_CHECKING:
    from moot.xprotocol.events.events import SignedPublic
    from moot.xprotocol.identity.keys import Identity

_REMEDY: Final = (
    "Revoke it with its own key file as well (--by), stop the adapter, and let its callers put the key under "
    "`revoked:`"
)

_EXAMPLES = """\
  xprotocol-adapter revoke ed25519:… --by ~/.xprotocol/org.key --publish wss://relay.example
  xprotocol-adapter revoke ed25519:… --by org.key --output revocation.json    publish it later
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "revoke",
        run_revoke,
        help="revoke a key, for good",
        description="Signs the revocation of a key, with the key itself or with one above it in a chain of "
        "delegations. The adapter stops, and adapters that call it refuse it, as soon as they receive the "
        "revocation; they obey the key itself and those that its announce names as its parents. Who will "
        "not notice is said, and the exit code is 1 then. It cannot be undone; create and register a new "
        "key. Without --publish nobody receives it.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("key", metavar="KEY", help="the key to revoke: ed25519:…")
    add("--by", type=Path, required=True, metavar="FILE", help="the key file that signs the revocation")
    add("--output", type=Path, metavar="FILE", help="write the revocation to this file")
    add("--force", action="store_true", help="overwrite the output file")
    add_publish(parser)
    add_config(parser)
    add_json(parser)


def run_revoke(chosen: argparse.Namespace) -> int:
    from moot.operations.text.terminal_escape import printable
    from moot.xprotocol.adapter.trust_chain.event_files import write_events
    from moot.xprotocol.events.revocation import revoke
    from moot.xprotocol.identity import keyfile
    from moot.xprotocol.identity.keys import VerifyKey

    if chosen.output is None and chosen.publish is None:
        raise Misused("give --publish RELAY, --output FILE, or both")
    # Only a bare --publish needs the configuration, which may be missing or wrong.
    settings = load_sections_if_any(chosen.config, ("relay",)) if chosen.publish == "" else None
    relays = relays_of(chosen.publish, settings)
    key = VerifyKey.parse(chosen.key).text
    authority = keyfile.load(chosen.by)
    signed = revoke(authority, key, now=time.time())
    if chosen.output is not None:
        write_events(chosen.output, json.loads(signed.raw), force=chosen.force)
    published, blind = run_errand(_publish(relays, authority, signed, key)) if relays else ([], [])
    value = {
        "ok": True,
        "id": signed.event.id,
        "revoked_key": key,
        "by": authority.key.text,
        "file": None if chosen.output is None else str(chosen.output),
        "published": published[0] if published else None,
        "not_noticed": blind,
    }
    lines = [
        f"revoked       {key}",
        f"by            {authority.key.text}",
        *([] if chosen.output is None else [f"written to    {chosen.output}"]),
        *([f"published at  {url}" for url in published] or ["not published yet"]),
    ]
    for line in () if chosen.json else blind:
        print(f"xprotocol-adapter: {printable(line)}", file=sys.stderr)
    return report(chosen, value, lines, code=1 if blind else 0)


async def _publish(
    relays: tuple[str, ...], authority: Identity, signed: SignedPublic, key: str
) -> tuple[list[str], list[str]]:
    """Publish at every relay; which took it, and who will not notice. Raises MootError if none took it."""
    from moot.errors import MootError
    from moot.xprotocol.adapter.trust_chain.key_registration import publish_events
    from moot.xprotocol.adapter.trust_chain.revocation_followers import who_is_obeyed

    published: list[str] = []
    blind: list[str] = []
    failed: MootError | None = None
    for url in relays:
        try:
            await publish_events([url], authority, [signed])
        except MootError as fault:
            failed = fault
            blind.append(f"who uses {url} is not told: {fault}")
            continue
        published.append(url)
        try:
            obeyed = await who_is_obeyed(key, [url])
        except MootError as fault:
            blind.append(f"whether anybody at {url} notices is not known: {fault}")
            continue
        by = authority.key.text
        if by != key and obeyed is None:
            blind.append(
                f"the key has announced nothing at {url}: who calls it does not know its parent and goes on. "
                f"{_REMEDY}"
            )
        elif by != key and obeyed is not None and by not in obeyed:
            blind.append(
                f"the announce of the key at {url} does not name {by} as its parent: the adapter goes on "
                f"answering, and who calls it goes on. {_REMEDY}"
            )
    if failed is not None and not published:
        raise failed
    return published, blind
