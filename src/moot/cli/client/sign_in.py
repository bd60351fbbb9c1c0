"""`moot sign-in`: signing in at an MCP server that is bridged into a space."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_code_port
from moot.cli.process import program

if TYPE_CHECKING:
    from moot.participant import JoinedSpace

_ABOUT = f"""\
Signs you in at an MCP server behind OAuth that is bridged into a space: your browser opens, and what the
server's provider says goes to the bridge, sealed. The credential stays with the bridge; nobody in the space
sees it. With --server the bridge uses it for everybody, without it only for calls that are yours, if the
server is set up so (credentials: requester or approver).

You need the right to send the request moot/sign-in (with --server: moot/sign-in-server) to the bridge.

{CONNECT_HELP}"""
_EXAMPLES = """\
  moot sign-in docs --server                     the bridge `docs` waits for a sign-in
  moot sign-in docs                              your own account, for your own calls
  moot sign-in docs --token-from my.key          a token that you got elsewhere
  moot sign-in docs --forget                     the bridge forgets your account
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands, name, help="sign in at an MCP server of a space", about=_ABOUT, examples=_EXAMPLES
    )
    add = parser.add_argument
    add("bridge", metavar="NAME", help="the participant that bridges the server")
    add("--server", action="store_true", help="for everybody, not for your own calls")
    add("--token-from", type=Path, metavar="FILE", help="hand over the token in this file")
    add("--forget", action="store_true", help="let the bridge forget the credential")
    add_code_port(parser)
    add_connect_options(parser)
    parser.set_defaults(run=run_sign_in)


@program.tells_errors
def run_sign_in(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_errand

    return run_errand(_sign_in(options))


async def _sign_in(options: argparse.Namespace) -> int:
    from moot.participant import connect

    where = connect_settings_of(options)
    async with connect(where.url, where.space, where.token.reveal(), name=where.name) as space:
        method = "moot/sign-in-server" if options.server else "moot/sign-in"
        if options.forget:
            await space.request(options.bridge, method, {"forget": True})
            print("Forgotten.")
            return 0
        if options.token_from is not None:
            from moot.private_files import token_from

            token = token_from(options.token_from)
            begun = await space.request(options.bridge, method, {})
            kept = await _hand_over(space, options.bridge, method, begun, {"token": token})
        else:
            kept = await _with_browser(space, options, method)
    print(f"Signed in; {options.bridge} keeps it{kept}.", flush=True)
    return 0


async def _with_browser(space: JoinedSpace, options: argparse.Namespace, method: str) -> str:
    from moot.cli.client.browser import has_display, open_browser
    from moot.errors import MootError
    from moot.oauth.loopback_receiver import LoopbackReceiver, open_receiver
    from moot.oauth.oauth_settings import SIGN_IN_SECONDS, SignInFailed
    from moot.oauth.provider_http import parts_of
    from moot.operations.text.terminal_escape import printable

    begun: dict[str, Any] = {}
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_answer(answer: Mapping[str, str]) -> str:
        try:
            kept = await _hand_over(space, options.bridge, method, begun, answer)
        except MootError as fault:
            if not done.done():
                done.set_exception(fault)
            raise SignInFailed("The bridge could not sign in; the terminal says why.") from None
        if not done.done():
            done.set_result(kept)
        return "Signed in. You can close this page."

    async with open_receiver(LoopbackReceiver(on_answer), options.port) as receiver:
        begun = await space.request(options.bridge, method, {"redirect_uri": receiver.redirect_uri})
        link = begun.get("link")
        parts = parts_of(link) if isinstance(link, str) else None
        if not isinstance(link, str) or parts is None:
            raise SignInFailed("the bridge gave no proper link")
        # Where the link really goes, whatever the bridge calls it.
        where = printable(parts.netloc)
        print(f"Sign in at {where}; {options.bridge} will use your account:\n{printable(link)}", flush=True)
        if has_display():
            await asyncio.to_thread(open_browser, link)
        try:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                return await done
        except TimeoutError:
            raise SignInFailed("nobody signed in within ten minutes: try again") from None


async def _hand_over(
    space: JoinedSpace, bridge: str, method: str, begun: Mapping[str, Any], answer: Mapping[str, str]
) -> str:
    """Hand over what came back; how the bridge says that it keeps it."""
    from moot.oauth.one_time_key import seal, seal_subject
    from moot.operations.text.terminal_escape import printable

    about = seal_subject(str(begun["id"]), space.name)
    sealed = seal(str(begun["key"]), json.dumps(dict(answer)).encode(), about)
    answer = await space.request(bridge, method, {"id": begun["id"], "sealed": sealed})
    kept = answer.get("kept")
    return f", {printable(kept)}" if isinstance(kept, str) else ""
