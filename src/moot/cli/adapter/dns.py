"""`xprotocol-adapter dns`: prints the TXT record of the endpoint (XP 3.1, 8.1)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from moot.cli.adapter import Misused
from moot.cli.adapter.options import add_config, command, load_sections, own_identity, report
from moot.cli.options.shared_options import add_json

_EXAMPLES = """\
  xprotocol-adapter dns --config xprotocol-mcp-adapter.yml
  xprotocol-adapter dns --domain tools.acme.com >> acme.com.zone
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "dns",
        run_dns,
        help="print the DNS TXT record to publish",
        description="Prints the DNS record for xp://DOMAIN as a line of a zone file: the adapter's keys, its "
        "relay and the address of its well-known document. Publish exactly one, and serve "
        "https://DOMAIN/.well-known/xprotocol-endpoint as well: both must name the same key.",
        examples=_EXAMPLES,
    )
    add_config(parser)
    parser.add_argument("--domain", metavar="HOST", help="overrides discovery.domain")
    parser.add_argument("--key", type=Path, metavar="FILE", help="overrides identity.key_file")
    add_json(parser)


def run_dns(chosen: argparse.Namespace) -> int:
    import msgspec

    from moot.xprotocol.adapter.discovery.dns_record import TTL_SECONDS, record_name, record_of, zone_line
    from moot.xprotocol.endpoint.dns_records import record_text

    settings = load_sections(chosen.config, ("identity.key_file", "relay", "discovery"))
    domain = chosen.domain or settings.discovery.domain
    if domain is None:
        raise Misused("no domain: give --domain tools.example.com, or set discovery.domain")
    discovery = msgspec.structs.replace(settings.discovery, domain=domain)
    record = record_of(
        msgspec.structs.replace(settings, discovery=discovery), own_identity(chosen.key, settings)[1]
    )
    value = {"name": record_name(domain), "type": "TXT", "ttl": TTL_SECONDS, "text": record_text(record)}
    return report(chosen, value, [zone_line(domain, record)])
