"""`xprotocol-adapter revoke`: revokes a key for good."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from moot.cli.adapter import Misused
from moot.cli.adapter.options import (
    add_config,
    add_json,
    add_publish,
    command,
    load_sections_if_any,
    print_json,
    relays_of,
)
from moot.cli.interruption import run_errand

_EXAMPLES = """\
  xprotocol-adapter revoke ed25519:… --by ~/.xprotocol/org.key --publish wss://relay.example
  xprotocol-adapter revoke ed25519:… --by org.key --output revocation.json    publish it later
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "revoke",
        run,
        help="revoke a key, for good",
        description="Signs the revocation of a key, with the key itself or with one above it in a chain of "
        "delegations. Everybody who relies on that chain refuses the key as soon as they receive "
        "the revocation. It cannot be undone; create and register a new key. Without --publish "
        "nobody receives it.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("key", metavar="KEY", help="the key to revoke: ed25519:…")
    add("--by", type=Path, required=True, metavar="FILE", help="the key file that signs the revocation")
    add("--output", type=Path, metavar="FILE", help="write the revocation to this file")
    add("--force", action="store_true", help="overwrite the output file")
    add_publish(parser, "publish it")
    add_config(parser)
    add_json(parser, "the result as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.trust_chain.event_files import write_events
    from moot.adapter.trust_chain.key_registration import publish_events
    from moot.identity import keyfile
    from moot.identity.keys import VerifyKey
    from moot.xprotocol.revocation import revoke

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
    print(f"published at  {published}" if published is not None else "not published yet")
    return 0
