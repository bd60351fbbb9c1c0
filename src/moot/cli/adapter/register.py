"""`xprotocol-adapter register`: a parent key delegates capabilities to the adapter's key (XP 6.2, 8.6)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.adapter import Misused
from moot.cli.adapter.options import (
    add_config,
    add_publish,
    command,
    format_time,
    load_sections_if_any,
    own_identity,
    relays_of,
    report,
)
from moot.cli.options.shared_options import add_json
from moot.cli.options.time_argument import parse_end_time
from moot.cli.process.interruption import run_errand

if TYPE_CHECKING:
    from moot.xprotocol.adapter.config.adapter_settings import AdapterSettings

# New servers of a changed configuration have to start.
_RELOAD_SECONDS: Final = 60.0
_FOLLOWING: Final = {
    True: "it runs, and has announced that it obeys this parent's revocation",
    False: "it does not obey this parent's revocation yet: see `status` and its log, or restart it",
    None: "none runs here; it obeys this parent's revocation once it starts with the file beside its key",
}

_EXAMPLES = """\
  xprotocol-adapter register --key ~/.xprotocol/adapter.key \\
      --parent-key ~/.xprotocol/org-dept.key --capabilities "filesystem.read,filesystem.write,crm.read"
  xprotocol-adapter register --parent-key org.key           key and capabilities from the configuration
  xprotocol-adapter register --key dept.key --parent-key root.key --capabilities 'com.acme.*'
  xprotocol-adapter register --parent-key dept.key --parent-delegation dept.delegation.json --publish

Two levels: the root registers the department, then the department registers the adapter, with the file of
its own registration as --parent-delegation. Anybody can check the result with `trust-chain`.
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "register",
        run_register,
        help="register the adapter's key with a parent key",
        description="Signs a delegation with a parent key: the adapter's key gets a list of capabilities "
        "until a given time. The delegation is written beside the adapter's key file, where the adapter "
        "finds it by itself, also while it runs: from then on it obeys when the parent revokes its key, "
        "and its announce tells its callers so. For rights that the parent gives to others, name the file "
        "in the configuration as identity.parent_delegation_event, and the parent's key as "
        "identity.parent_key. "
        "Capabilities have to be listed: a stolen adapter key must not give access to the whole "
        "organisation.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("--key", metavar="FILE", help="the adapter's key file, or its public key (default: as configured)")
    add("--parent-key", type=Path, required=True, metavar="FILE", help="the parent's key file")
    add(
        "--capabilities",
        metavar="CSV",
        help="comma-separated capabilities; short names are expanded with the configuration's "
        "namespaces (default: what the configured sources need)",
    )
    add(
        "--expires",
        type=parse_end_time,
        metavar="TIME",
        help="expiry time: 90d from now, or 2027-01-31 (default: a year from now)",
    )
    add(
        "--parent-delegation",
        type=Path,
        metavar="FILE",
        help="the parent's own registration, unless it is the root",
    )
    add(
        "--output",
        type=Path,
        metavar="FILE",
        help="default: next to the key file, with the suffix .delegation.json",
    )
    add("--force", action="store_true", help="overwrite the output file")
    add_publish(parser)
    add_config(parser)
    add_json(parser)


def run_register(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.trust_chain.event_files import write_events
    from moot.xprotocol.adapter.trust_chain.key_registration import (
        LIFETIME_SECONDS,
        publish_events,
        register_key,
    )
    from moot.xprotocol.adapter.trust_chain.own_chain import registration_file
    from moot.xprotocol.identity import keyfile

    settings = load_sections_if_any(chosen.config, ("identity.key_file", "mcp_sources", "relay"))
    capabilities = _capabilities(chosen, settings)
    relays = relays_of(chosen.publish, settings)
    key, key_file = _key(chosen, settings)
    parent = keyfile.load(chosen.parent_key)
    now = time.time()
    made = register_key(
        parent,
        key,
        capabilities,
        ends=chosen.expires or int(now) + LIFETIME_SECONDS,
        now=now,
        parent_chain=chosen.parent_delegation,
    )
    output = chosen.output or registration_file(key_file)
    write_events(output, made.as_json(), force=chosen.force)
    published = run_errand(publish_events(relays, parent, made.events)) if relays else None
    beside = output.resolve() == registration_file(key_file).resolve()
    follows = _tell_adapter(settings, key, parent.key.text, beside=beside)
    link = made.chain.links[-1]
    value = {
        "ok": True,
        "file": str(output),
        "id": link.id,
        "delegated_key": key,
        "parent_key": parent.key.text,
        "root": made.chain.root,
        "capabilities": sorted(link.capabilities),
        "expires_at": link.ends,
        "published": published,
        "adapter_follows": follows,
        "delegation": made.as_json(),
    }
    lines = [
        f"delegated to  {key}",
        f"by            {parent.key.text}",
        *(f"capability    {name}" for name in sorted(link.capabilities)),
        f"until         {format_time(link.ends)}",
        f"written to    {output}",
        *([] if published is None else [f"published at  {published}"]),
        f"adapter       {_FOLLOWING[follows]}",
        "",
        "If the parent may also give rights to others, in the adapter's configuration:",
        "",
        "identity:",
        f"  parent_key: {parent.key.text}",
        f"  parent_delegation_event: {output.absolute()}",
    ]
    return report(chosen, value, lines)


def _tell_adapter(settings: AdapterSettings | None, key: str, parent: str, *, beside: bool) -> bool | None:
    """Let the running adapter read its registration; whether it has announced that. None: none runs here."""
    from moot.errors import MootError
    from moot.xprotocol.adapter.operations.control_socket import (
        AdapterNotRunning,
        ControlRequestFailed,
        send_control_request,
    )
    from moot.xprotocol.adapter.trust_chain.revocation_followers import wait_obeyed

    if settings is None or not beside:
        return None if settings is None else False

    async def tell() -> bool | None:
        try:
            await send_control_request(settings.control, "reload", timeout_seconds=_RELOAD_SECONDS)
        except AdapterNotRunning:
            return None
        except (ControlRequestFailed, TimeoutError):
            return False
        try:
            return await wait_obeyed(key, parent, settings.relay.urls)
        except MootError:
            return False

    return run_errand(tell())


def _capabilities(chosen: argparse.Namespace, settings: AdapterSettings | None) -> list[str]:
    from moot.xprotocol.adapter.trust_chain.key_registration import capabilities_of, capability_expansion

    if chosen.capabilities is not None:
        names = [name.strip() for name in chosen.capabilities.split(",") if name.strip()]
        if not names:
            raise Misused("--capabilities is empty: name at least one, such as com.acme.crm.read")
        expand = capability_expansion(settings)
        return [expand(name) for name in names]
    if settings is None:
        raise Misused(
            "--capabilities is missing: list what the adapter may do, for example "
            "--capabilities com.acme.filesystem.read,com.acme.crm.read, or give --config FILE to use what "
            "its sources need"
        )
    found = list(capabilities_of(settings))
    if not found:
        raise Misused("the configuration has no mcp_sources to take capabilities from: give --capabilities")
    return found


def _key(chosen: argparse.Namespace, settings: AdapterSettings | None) -> tuple[str, Path]:
    """The adapter's public key, and the file that the output is named after."""
    from moot.xprotocol.identity.keys import SIGNING_PREFIX, VerifyKey

    if chosen.key is not None and chosen.key.startswith(SIGNING_PREFIX):
        return VerifyKey.parse(chosen.key).text, Path("adapter.key")
    path, identity = own_identity(None if chosen.key is None else Path(chosen.key), settings)
    return identity.key.text, path
