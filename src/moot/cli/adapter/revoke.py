"""`xprotocol-adapter revoke`: a key is void, for good."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from moot.cli.adapter import Misused
from moot.cli.adapter.options import add_config, add_json, command, print_json, usable_if_any
from moot.cli.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter revoke ed25519:… --by ~/.xprotocol/org.key --publish wss://relay.example
  xprotocol-adapter revoke ed25519:… --by org.key --output revocation.json    to be published later
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "revoke",
        run,
        help="revoke a key, for good",
        description="Signs that a key is void: by the key itself, or by one that stands above it in a "
        "chain of delegations. Whoever relies on that chain refuses the key as soon as it "
        "hears of it. There is no way back; a new key has to be made and registered. Without "
        "--publish nobody hears of it.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("key", metavar="KEY", help="the key to revoke: ed25519:…")
    add("--by", type=Path, required=True, metavar="FILE", help="the key file of whoever revokes it")
    add("--output", type=Path, metavar="FILE", help="write the statement to this file")
    add("--force", action="store_true", help="replace the output file")
    add(
        "--publish",
        nargs="?",
        const="",
        metavar="RELAY",
        help="have a relay tell it to everybody: the one given, or the configured ones",
    )
    add_config(parser)
    add_json(parser, "the statement and where it went, as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.trust_chain.key_registration import publish_events, write_events
    from moot.identity import keyfile
    from moot.identity.keys import VerifyKey
    from moot.xprotocol.revocation import revoke

    if chosen.output is None and chosen.publish is None:
        raise Misused("give --publish RELAY to have it known, or --output FILE to keep it, or both")
    relays: tuple[str, ...] = (chosen.publish,) if chosen.publish else ()
    if chosen.publish == "":
        settings = usable_if_any(chosen.config, ("relay",))
        if settings is None:
            raise Misused("--publish needs a relay here: --publish wss://relay.example, or --config FILE")
        relays = settings.relay.urls
    key = VerifyKey.parse(chosen.key).text
    authority = keyfile.load(chosen.by)
    signed = revoke(authority, key, now=time.time())
    if chosen.output is not None:
        write_events(chosen.output, json.loads(signed.raw), force=chosen.force)
    published = run_errand(publish_events(relays, authority, [signed])) if relays else None
    if chosen.json:
        print_json(
            {
                "ok": True,
                "id": signed.event.id,
                "revoked_key": key,
                "by": authority.key.text,
                "file": None if chosen.output is None else str(chosen.output),
                "published": published,
            }
        )
        return 0
    print(f"revoked       {key}")
    print(f"by            {authority.key.text}")
    if chosen.output is not None:
        print(f"written to    {chosen.output}")
    print(f"published at  {published}" if published is not None else "not published: nobody heard of it yet")
    return 0
