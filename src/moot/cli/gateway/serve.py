"""`moot serve`: the gateway, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.options.shared_options import add_configured_address, add_configured_data
from moot.cli.process import program
from moot.cli.process.interruption import run_service
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.config.configuration import Configuration
    from moot.gateway.app import Gateway


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="run the gateway of a moot.yaml or space.yaml",
        about="Runs the gateway that a configuration describes: a moot.yaml with gateway: and spaces:, "
        "or the single-space space.yaml of the MEW reference implementation. Ctrl-C and SIGTERM stop it: "
        "members are told and the journal is flushed. `moot reload` (or SIGHUP) reads the file again: "
        "participants and capabilities change; only who is no longer named, or whose token is void, is "
        "dropped.",
        examples="  moot serve moot.yaml\n"
        "  moot serve space.yaml --port 9000 --data /var/lib/moot\n"
        "  moot serve moot.yaml --check                   only read the file and say what it means\n"
        "  moot serve moot.yaml --check --try-providers --token-file ana.jwt    which rule lets her in\n",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a moot.yaml or space.yaml")
    add_configured_address(parser)
    add_configured_data(parser)
    add("--check", action="store_true", help="only read the configuration, say what it means, and exit")
    add("--try-providers", action="store_true", help="with --check: ask the providers of gateway.oidc, too")
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="with --try-providers: which rule means the holder of this token, and why others do not",
    )
    parser.set_defaults(run=run_gateway)


def run_gateway(options: argparse.Namespace) -> int:
    if options.check:
        from moot.config import check, load

        places = {"data": options.data, "host": options.host, "port": options.port}
        for line in check(options.config, environ=os.environ, **places):
            print(line)
        for note in _certificate_notes(load(options.config, environ=os.environ, dry=True, **places)):
            print(f"note: {note}")
        if options.try_providers:
            asyncio.run(_try_providers(options))
        return 0
    if options.try_providers or options.token_file is not None:
        raise UsageError("--try-providers goes with --check, and --token-file with both")
    # Without a bound: what members said is written down first.
    return run_service(serve(options), grace_seconds=None)


async def serve(options: argparse.Namespace) -> int:
    """Run until cancelled."""
    from moot import logs
    from moot.gateway.app import Gateway
    from moot.up.reload_report import findable_gateway

    configuration = _read(options)
    log = configuration.gateway.log
    logs.set_up(log.level, log.format, log.file)
    for note in configuration.notes:
        print(f"note: {note}", flush=True)
    gateway = Gateway(configuration)
    await gateway.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, Reload(gateway, options, configuration))
    try:
        for admin, file in configuration.admin_token_files.items():
            print(f"token of administrator {admin}: {file}", flush=True)
        for name, settings in configuration.spaces.items():
            for participant, file in settings.token_files.items():
                held = settings.config.participants[participant].credentials
                if any(gateway.admits(name, participant, token) for token in held):
                    print(f"token of {participant} in {name}: {file}", flush=True)
                else:
                    print(f"token of {participant} in {name}: void, it was replaced or removed", flush=True)
        if gateway.addresses.local_url is not None:
            print(f"for programs on this machine: {gateway.addresses.local_url}", flush=True)
        async with _mcp_of(gateway):
            with findable_gateway(configuration.gateway.data, gateway.addresses.machine_url):
                print(f"moot gateway listening on {gateway.url}", flush=True)
                raise await gateway.wait_failed()
    finally:
        await gateway.stop()
        gateway.check_on_disk()


async def _try_providers(options: argparse.Namespace) -> None:
    from moot.config import load
    from moot.gateway.sign_in.provider_check import check_providers
    from moot.private_files import token_from

    token = None if options.token_file is None else token_from(options.token_file)
    configuration = load(options.config, environ=os.environ, data=options.data, dry=True)
    async for line in check_providers(configuration.gateway.oidc, token):
        print(line)


def _mcp_of(gateway: Gateway) -> AbstractAsyncContextManager[None]:
    """Serves `gateway.mcp`, if there is any."""
    if not gateway.config.mcp:
        return nullcontext()
    # Only here: a gateway without needs none of what it is made of.
    from moot.up.mcp_endpoint import serve_mcp

    return serve_mcp(gateway)


def _certificate_notes(configuration: Configuration) -> list[str]:
    """Raises UsageError when the gateway could not use its certificate."""
    if configuration.gateway.tls is None:
        return []
    from moot.gateway.part_settings import tls_files
    from moot.net.server_tls import check_files

    return check_files(tls_files(configuration.gateway.tls))


def _read(options: argparse.Namespace) -> Configuration:
    from moot.config import load

    return load(options.config, environ=os.environ, data=options.data, host=options.host, port=options.port)


class Reload:
    """Applies the file as it is now; called at SIGHUP."""

    def __init__(
        self,
        gateway: Gateway,
        options: argparse.Namespace,
        configuration: Configuration,
    ) -> None:
        from moot.up.reload_report import ReloadReporter

        self._gateway = gateway
        self._options = options
        self._configuration = configuration
        self._reporter = ReloadReporter(configuration.gateway.data)

    def __call__(self) -> None:
        from moot.config.configuration_changes import describe_changes

        try:
            configuration = _read(self._options)
            notes = self._gateway.reload(configuration)
        except UsageError as fault:
            # The space goes on as it is: a typo must not stop anybody.
            print(f"not reloaded: {fault}", flush=True)
            self._reporter.write([str(fault)], reloaded=False)
            return
        lines = [*describe_changes(self._configuration, configuration), *notes] or ["nothing changed"]
        self._configuration = configuration
        print("reloaded", *lines, sep="\n", flush=True)
        self._reporter.write(lines, reloaded=True)
