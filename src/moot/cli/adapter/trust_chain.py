"""`xprotocol-adapter trust-chain`: walks and shows a key's chain of trust (XP 6.1, 8.1)."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.adapter import Misused
from moot.cli.adapter.options import (
    add_config,
    command,
    format_time,
    load_sections_if_any,
    own_identity,
    report,
)
from moot.cli.options.shared_options import add_json
from moot.cli.process.interruption import run_errand

if TYPE_CHECKING:
    from moot.protocol.operation import Json
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings
    from moot.xprotocol.adapter.trust_chain.chain_evidence import ChainEvidence, ChainWalk
    from moot.xprotocol.adapter.trust_chain.chain_lookup import EvidenceChannel

_EXAMPLES = """\
  xprotocol-adapter trust-chain                             this adapter's own chain
  xprotocol-adapter trust-chain ed25519:… --relay wss://relay.example --trust ed25519:ROOT…
  xprotocol-adapter trust-chain ed25519:… --delegation adapter.delegation.json --revocation revoked.json
  xprotocol-adapter trust-chain --host xp://tools.acme.com  the key of this host

Without --trust the chain is checked and its root is shown, but you have to verify the root yourself: compare
it with what its owner published.
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "trust-chain",
        run_trust_chain,
        help="walk and show a key's chain of trust",
        description="Walks from a key up to the root of its organisation and checks every link: signature, "
        "capabilities, validity and revocations. The delegations come from files, from the key's "
        "announce on a relay, and from what the relay has stored; all of them are verified here. "
        "With --host, DNS and the well-known document must name the same key. Exit code 0 when "
        "the chain is valid, 1 when it is not.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("key", nargs="?", metavar="KEY", help="ed25519:… (default: the host's, or this adapter's own)")
    for option in ("--delegation", "--revocation"):
        add(
            option,
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help=f"a file of {option[2:]}s; may be given several times",
        )
    add(
        "--relay",
        action="append",
        default=[],
        metavar="URL",
        help="query this relay; may be given several times",
    )
    add(
        "--trust",
        action="append",
        default=[],
        metavar="KEY",
        help="a trusted key, which has to be in the chain; may be given several times",
    )
    add("--host", metavar="xp://HOST", help="also check DNS and the well-known address of this host")
    add(
        "--allow-private",
        action="store_true",
        help="allow a private address of the host, as in your own network",
    )
    add_config(parser)
    add_json(parser)


def run_trust_chain(chosen: argparse.Namespace) -> int:
    return run_errand(_check_chain(chosen))


async def _check_chain(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.config.value_readers import read_key
    from moot.xprotocol.adapter.trust_chain.chain_evidence import ChainEvidence, walk_chain

    settings = load_sections_if_any(chosen.config, ("identity", "relay", "trust"))
    evidence = ChainEvidence()
    for file in (*chosen.delegation, *chosen.revocation):
        evidence.add_file(file)
    anchors = {read_key(key, "--trust") for key in chosen.trust}
    if settings is not None and not anchors:
        anchors = set(settings.anchors)
    key = chosen.key and read_key(chosen.key, "KEY")
    channels: list[EvidenceChannel] = []
    relays = list(chosen.relay)
    if chosen.host is not None:
        key, channels, found_relays = await _check_host(chosen, key)
        relays = relays or found_relays
    elif key is None:
        key = _own(settings, evidence)
    if settings is not None and not relays and not evidence.delegations:
        relays = list(settings.relay.urls)
    if not relays and chosen.host is None and not evidence.delegations and not evidence.refused:
        raise Misused("nothing to check: give --relay URL, --delegation FILE, --host HOST or --config FILE")
    if relays and key is not None:
        channels.append(await _query_relay(evidence, key, relays, sorted(anchors)))
    found = walk_chain(key or "", evidence, anchors=anchors, now=time.time())
    holds = found.holds and all(channel.agrees is not False for channel in channels)
    value = _to_json(found, channels, evidence, holds=holds)
    return report(chosen, value, _lines(found, channels, evidence, anchors), code=0 if holds else 1)


def _own(settings: AdapterSettings | None, evidence: ChainEvidence) -> str:
    """This adapter's key; with the file of its chain, unless other delegations were given."""
    from moot.xprotocol.adapter.trust_chain.own_chain import registration_file

    key_file, identity = own_identity(None, settings)
    file = settings.identity.parent_delegation_event if settings is not None else None
    beside = registration_file(key_file)
    if file is None and beside.is_file():
        file = beside
    if file is not None and not evidence.delegations:
        evidence.add_file(file)
    return identity.key.text


async def _check_host(
    chosen: argparse.Namespace, key: str | None
) -> tuple[str | None, list[EvidenceChannel], list[str]]:
    from moot.xprotocol.adapter.trust_chain.chain_lookup import check_channels
    from moot.xprotocol.endpoint.dns_records import dns_lookup
    from moot.xprotocol.endpoint.document_fetch import FetchPolicy

    endpoint = chosen.host if "://" in chosen.host else f"xp://{chosen.host}"
    policy = FetchPolicy(allow_private=chosen.allow_private)
    return await check_channels(endpoint, key, policy, dns_lookup())


async def _query_relay(
    evidence: ChainEvidence, key: str, relays: list[str], anchors: list[str]
) -> EvidenceChannel:
    from moot.errors import MootError
    from moot.xprotocol.adapter.trust_chain.chain_lookup import EvidenceChannel, gather_evidence

    try:
        url = await gather_evidence(evidence, key, relays, anchors=anchors)
    except MootError as fault:
        return EvidenceChannel("relay", None, str(fault))
    if key not in evidence.announces:
        return EvidenceChannel("relay", None, f"{url} has no announce of this key")
    name = evidence.announces[key].payload.get("display_name")
    return EvidenceChannel("relay", True, f"{url} has its announce, as {name!r}")


def _to_json(
    found: ChainWalk, channels: list[EvidenceChannel], evidence: ChainEvidence, *, holds: bool
) -> dict[str, Json]:
    links = found.chain.links if found.chain is not None else ()
    return {
        "ok": holds,
        "key": found.key,
        "holds": found.holds,
        "reason": found.fault,
        "root": found.chain.root if found.chain is not None else (found.key if found.holds else None),
        "trusted": found.trusted,
        "links": [
            {
                "by": link.signer,
                "to": link.delegated_key,
                "capabilities": sorted(link.capabilities),
                "starts": link.starts,
                "expires_at": link.ends,
                "event": link.id,
            }
            for link in links
        ],
        "channels": [{"name": p.name, "agrees": p.agrees, "message": p.message} for p in channels],
        "not_verified": evidence.refused,
    }


def _lines(
    found: ChainWalk, channels: list[EvidenceChannel], evidence: ChainEvidence, anchors: set[str]
) -> Iterator[str]:
    if found.chain is not None:
        note = "compare it with what its owner published" if found.trusted is None else "not trusted here"
        root = found.chain.root
        yield f"{root}  (root, {'trusted' if root in anchors else note})"
        for depth, link in enumerate(found.chain.links, 1):
            mark = "  (trusted)" if link.delegated_key in anchors else ""
            yield f"{'    ' * depth}└── {link.delegated_key}{mark}"
            capabilities = ", ".join(sorted(link.capabilities))
            yield f"{'    ' * depth}    {capabilities} until {format_time(link.ends)}"
    else:
        yield found.key + ("  (trusted itself)" if found.holds else "")
    mark_of = {True: "agrees", False: "DISAGREES", None: "gave no answer"}
    yield from (f"{channel.name} {mark_of[channel.agrees]}: {channel.message}" for channel in channels)
    yield from (f"ignored: {reason}" for reason in evidence.refused)
    yield "the chain is valid" if found.holds else f"the chain is NOT valid: {found.fault or ''}"
