"""`moot chat`: proposals as cards in Matrix, Slack or Telegram, decided there."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.member_options import (
    MEMBER_HELP,
    add_log_level,
    add_member_options,
    digest_of_member,
    member_settings_of,
    state_folder,
)
from moot.cli.options.shared_options import add_listen_address, add_state
from moot.cli.process import program
from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.chat.platform import Platform

_ABOUT: Final = """\
Shows what waits for a decision as cards in a chat, and does what people do there as themselves: approve,
reject with words, ask back. A card shows the whole call, what deserves a look and why; where the call does
not fit, or is above the line that the space sets (`chat_link_above`), it only links to the console.

A person binds their chat account once, by a code from the console or `moot chat bind` that they send to the
bot in a room of their own. From then on the account holds that person's rights to decide and no more. Names
and mentions prove nothing, and neither does an edited, forwarded or repeated message.
"""
_EXAMPLES: Final = f"""\
  moot chat matrix --as chat --homeserver https://matrix.example.org --bot-token-file matrix.token
  moot chat telegram --as chat --bot-token-file telegram.token
  moot chat slack --as chat --bot-token-file slack.token --app-token-file slack-app.token
  moot chat matrix … --channel '!room:example.org'     and cards for all who are in this room
  moot chat bind                                      a code that binds your account

Its participant in moot.yaml:
  chat:
    capabilities: [{{kind: moot/bind}}, {{kind: moot/list-proposals}}]
Give it no right to decide: people do that with their own.
{MEMBER_HELP}"""
_BIND_ABOUT: Final = f"""\
Prints a code that binds your chat account to you, once, within ten minutes. Send it to the bot in a room of
your own with it. Show it to nobody: whoever sends it first decides as you. If the bot says that your code
was used already, and not by you, have that binding ended: `moot member tokens` and `revoke-token`.

{CONNECT_HELP}"""
_PLATFORMS: Final = {
    "matrix": "a homeserver of Matrix, in rooms without encryption",
    "telegram": "a bot of Telegram",
    "slack": "an app of Slack, by Socket Mode or HTTP",
}


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands, name, help="decide in the chat you are in", about=_ABOUT, examples=_EXAMPLES
    )
    for platform, help in _PLATFORMS.items():
        one = program.add_command(group, platform, help=help, about=_ABOUT, examples=_EXAMPLES)
        add = one.add_argument
        secret = "a file with the token of the bot there, which only you can read"
        add("--bot-token-file", type=Path, required=True, metavar="FILE", help=secret)
        if platform == "matrix":
            add("--homeserver", required=True, metavar="URL", help="such as https://matrix.example.org")
        elif platform == "telegram":
            add(
                "--api",
                default="https://api.telegram.org",
                metavar="URL",
                help="a Bot API server of your own",
            )
        else:
            add("--app-token-file", type=Path, metavar="FILE", help="an app-level token: Socket Mode")
            add("--signing-secret-file", type=Path, metavar="FILE", help="the signing secret: HTTP instead")
            add_listen_address(one, 8_090)
            add("--api", default="https://slack.com/api", metavar="URL", help=argparse.SUPPRESS)
        add(
            "--channel", action="append", default=[], metavar="ROOM", help="a shared room that sees all cards"
        )
        add("--console", metavar="URL", help="where people open the console (default: the gateway's address)")
        add_state(one)
        add_member_options(one)
        add_log_level(one)
        one.set_defaults(run=run_chat, platform=platform)
    bind = program.add_command(
        group,
        "bind",
        help="print a code that binds your account",
        about=_BIND_ABOUT,
        examples="  moot chat bind\n",
    )
    add_connect_options(bind)
    bind.set_defaults(run=run_bind)


def run_chat(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_service

    return run_service(_serve(options))


@program.tells_errors
def run_bind(options: argparse.Namespace) -> int:
    from moot.cli.client.gateway_request import request_json

    settings = connect_settings_of(options)
    made = request_json("POST", settings.url, "sign-in-links", settings.token.reveal(), json={"for": "chat"})
    minutes = round(float(made["valid_seconds"]) / 60)
    print(f"bind {made['code']}")
    print(f"Send this line to the bot, in a room of the two of you, within {minutes} minutes. It works once.")
    print("Show it to nobody else: whoever sends it first decides as you.")
    return 0


async def _serve(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.chat.chat_service import ChatService
    from moot.chat.chat_settings import ChatSettings, ask_for_space
    from moot.chat.chat_state import ChatState
    from moot.operations.text.call_text import console_address
    from moot.operations.text.terminal_escape import printable
    from moot.participant import connect
    from moot.private_files import use_folder
    from moot.protocol.close_codes import SHUT_DOWN

    where = member_settings_of(options)
    platform = _platform(options)
    logs.set_up(options.log_level, "text", None)
    account = await platform.start()
    folder = options.state
    if folder is None:
        digest = digest_of_member(options, where, options.platform, account)
        folder = state_folder(os.environ) / "moot" / "chat" / digest
    use_folder(folder, what="the folder of chat accounts", option="--state DIR")
    settings = ChatSettings(
        gateway=where.url,
        space=where.space,
        token=where.token_source,
        state_file=folder / f"{options.platform}.json",
        channels=tuple(dict.fromkeys(options.channel)),
        console=_console(options) or console_address(where.url),
    )
    with _only_one(settings.state_file):
        state = ChatState(settings.state_file)
        facts = await ask_for_space(settings)
        async with (
            connect(where.url, where.space, where.token_source, name=where.name) as space,
            _requests_of(platform, options),
        ):
            if not space.may("moot/bind"):
                raise UsageError(
                    f"{space.name} may not bind accounts: give it {{kind: moot/bind}} (moot chat --help)"
                )
            bound = len(state.record.bindings)
            told = f"{account} shows what waits in {facts.name} on {platform.name}; {bound} accounts bound"
            print(printable(told), flush=True)
            ending = await ChatService(space, platform, state, settings, facts).run()
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    return 0 if ending.code == SHUT_DOWN else 1


@contextmanager
def _only_one(state_file: Path) -> Iterator[None]:
    """Raises UsageError where another program has this file: both would take each act."""
    import fcntl

    from moot.private_files import open_private

    with open(state_file.with_suffix(".lock"), "w", opener=open_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError("this bot is served by another `moot chat` already") from None
        yield


@asynccontextmanager
async def _requests_of(platform: Platform, options: argparse.Namespace) -> AsyncIterator[None]:
    """Where Slack sends its requests, if it does."""
    from moot.chat.slack import SlackPlatform

    if not isinstance(platform, SlackPlatform) or options.signing_secret_file is None:
        yield
        return
    from moot.chat.slack_requests import slack_app
    from moot.net.http_listener import bind_socket, serve_http

    with bind_socket(options.host, options.port, host_name="--host", port_name="--port") as listening:
        async with serve_http(slack_app(platform), listening):
            address = f"{options.host}:{listening.getsockname()[1]}"
            print(f"Slack's requests are taken at http://{address}/slack, behind your TLS proxy", flush=True)
            yield


def _console(options: argparse.Namespace) -> str:
    from moot.config.notification_reader import read_public_url

    return (read_public_url(options.console, "--console") or "").rstrip("/")


def _platform(options: argparse.Namespace) -> Platform:
    from moot.private_files import token_from

    token = token_from(options.bot_token_file)
    if options.platform == "matrix":
        from moot.chat.matrix import MatrixPlatform

        return MatrixPlatform(_address(options.homeserver, "--homeserver"), token)
    if options.platform == "telegram":
        from moot.chat.telegram import TelegramPlatform

        return TelegramPlatform(_address(options.api, "--api"), token)
    from moot.chat.slack import SlackPlatform

    if (options.app_token_file is None) == (options.signing_secret_file is None):
        raise UsageError(
            "say how acts come: --app-token-file FILE (Socket Mode), or --signing-secret-file FILE (HTTP)"
        )
    app_token = "" if options.app_token_file is None else token_from(options.app_token_file)
    secret = "" if options.signing_secret_file is None else token_from(options.signing_secret_file)
    api = _address(options.api, "--api")
    return SlackPlatform(api, token, app_token=app_token, signing_secret=secret)


def _address(url: str, option: str) -> str:
    """Raises UsageError for what is no address, and for one that would send the token unencrypted."""
    from urllib.parse import urlsplit

    from moot.config.gateway_config import is_local

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"{option} {url}: an address such as https://example.org")
    if parts.scheme == "http" and not is_local(parts.hostname):
        raise UsageError(f"{option} {url}: the token would be sent without encryption; use https")
    return url.rstrip("/")
