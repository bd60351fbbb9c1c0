"""`moot a2a`: agents of others join a space, and members are published as agents, by the A2A protocol."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.options.member_options import (
    MEMBER_HELP,
    add_log_level,
    add_member_options,
    digest_of_member,
    member_settings_of,
    state_folder,
)
from moot.cli.options.shared_options import add_answers, add_listen_address, add_state
from moot.cli.options.tls_options import add_tls_options, tls_files_of, warn_without_tls
from moot.cli.process import program
from moot.cli.process.extras import check_installed
from moot.cli.process.interruption import run_service
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable

if TYPE_CHECKING:
    from moot.agents.a2a.a2a_member import A2aMember
    from moot.config.connect_settings import ConnectSettings

# Limits of 0.2 that nobody tuned: name → the module of `moot.agents.a2a` whose constant it is now.
_FORMER_OF_JOIN: Final = (
    dict.fromkeys(("card_seconds", "max_card_bytes"), "agent_card")
    | dict.fromkeys(("connect_seconds", "stream_idle_seconds", "cancel_seconds"), "agent_client")
    | dict.fromkeys(("max_response_bytes",), "agent_client")
    | dict.fromkeys(("poll_first_seconds", "poll_max_seconds"), "agent_client")
    | dict.fromkeys(("answer_seconds", "retry_seconds"), "agent_client")
    | dict.fromkeys(("max_queued_chats", "max_questions", "task_seconds"), "a2a_member")
    | dict.fromkeys(("max_tasks", "max_chats_per_minute"), "a2a_member")
    | dict.fromkeys(("max_status_updates", "max_artifacts", "max_text_chars", "max_data_chars"), "task_turn")
    | dict.fromkeys(("max_task_chars",), "task_turn")
)
_FORMER_OF_SERVE: Final = (
    {"body_seconds": "a2a_server", "idle_seconds": "callers", "settle_seconds": "task_tracker"}
    | {"max_body_bytes": "a2a_server", "max_requests_at_once": "callers", "max_callers": "callers"}
    | {"max_wrong_tokens_per_minute": "callers", "max_cards_per_minute": "a2a_server"}
    | {"max_tasks": "task_book", "blocking_seconds": "request_handler"}
    | dict.fromkeys(("keep_seconds", "task_seconds"), "task_book")
    | dict.fromkeys(("max_message_chars", "max_message_bytes", "max_id_chars"), "message_parts")
    | dict.fromkeys(("call_seconds", "max_task_messages", "max_push_targets"), "request_handler")
    | dict.fromkeys(("max_history_messages", "max_history_bytes", "max_waiting_events"), "task_book")
    | dict.fromkeys(("max_artifacts", "max_artifact_bytes"), "task_book")
    | dict.fromkeys(("max_skills", "max_schemas_bytes", "skills_seconds"), "published_card")
    | dict.fromkeys(("push_seconds", "max_push_tries"), "push_sender")
    | dict.fromkeys(("push_retry_seconds", "max_waiting_pushes"), "push_sender")
)

_GROUP_EXAMPLES: Final = """\
  moot a2a join https://agent.example.com --as weather
  moot a2a serve --as a2a --publish coder
"""

_JOIN_ABOUT: Final = """\
Brings an agent of others, reached by A2A (Agent2Agent, 1.0 or 0.3), into a space as a member. Chats that name
it are sent to it; what it answers and its artifacts are chats, its status is reasoning, and its questions are
chats whose answer goes to the same task. Cancelling a chat cancels its task.

Its card is fetched within bounds, and may not lead to another server. What you write to it goes to that
server, and what it does there is neither seen nor decided in the space; here it has the rights of its member.
A message is sent once: after a lost connection or a restart its task is followed. Needs the extra moot[a2a].
"""

_JOIN_EXAMPLES: Final = f"""\
  moot a2a join https://agent.example.com --as weather                  in the folder of a space
  moot a2a join https://agent.example.com/card.json --agent-token-file weather.key --card-keys weather.jwks \\
      --gateway http://localhost:8080 --space lab --token-file weather.token

{MEMBER_HELP}
What the agent's participant needs: chat, chat/acknowledge, reasoning/*, and participant/status.
"""

_SERVE_ABOUT: Final = """\
Publishes members of a space as A2A agents, each at its own path, by JSON-RPC (1.0 and 0.3) and HTTP+JSON.
Only members that you name are published: ask them first. Cards are public; everything else needs the token of
a participant of the space, as a bearer token. A caller acts as that participant, with its rights alone.

A message is a chat to the member, and its answers are the artifacts of the task. A message with a data part
{"tool": NAME, "arguments": {…}} calls a tool of the member, or proposes the call where the caller may not.
While a proposal is pending the task is in the state input-required. Tasks outlive a restart. Needs the extra
moot[a2a].
"""

_SERVE_EXAMPLES: Final = f"""\
  moot a2a serve --as a2a --publish coder                               in the folder of a space
  moot a2a serve --gateway https://moot.example --space lab --token-file a2a.token --publish coder \\
      --publish files --host 0.0.0.0 --port 8443 --public-url https://agents.example.com:8443 \\
      --tls-certificate fullchain.pem --tls-key privkey.pem

{MEMBER_HELP}
What the service's own participant needs: nothing, or mcp/request for tools/list, to show tools as skills.
What a caller's participant needs: chat, chat/cancel, and mcp/proposal and mcp/withdraw to propose calls.
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands,
        name,
        help="let agents of others join, and publish members, by A2A",
        about="Agents of other people and companies, by the Agent2Agent protocol. Needs the extra moot[a2a].",
        examples=_GROUP_EXAMPLES,
    )
    join = program.add_command(
        group,
        "join",
        help="let an agent of others take part",
        about=_JOIN_ABOUT,
        examples=_JOIN_EXAMPLES,
    )
    add = join.add_argument
    add("url", metavar="URL", help="the agent, or its card")
    add_member_options(join)
    add_state(join)
    add("--agent-token-file", type=Path, metavar="FILE", help="a bearer token that the agent wants to see")
    add("--card-keys", type=Path, metavar="FILE", help="keys (JWK or JWK set) one of which signed the card")
    add("--require-signature", action="store_true", help="refuse a card without a checked signature")
    origin_help = "another server (https://host:port) that the card may name"
    add("--allow-origin", action="append", default=[], metavar="ORIGIN", help=origin_help)
    add("--allow-plain-http", action="store_true", help="allow http:// to other machines than this one")
    add_answers(join)
    style_help = "how messages are written: quoted below their sender, or as they are (default: quoted)"
    add("--style", choices=("quoted", "bare"), default="quoted", help=style_help)
    # As 0.2 had it: what it set is constant.
    add("--limit", action="append", default=[], help=argparse.SUPPRESS)
    add_log_level(join)
    join.set_defaults(run=run_join)
    serve = program.add_command(
        group,
        "serve",
        help="publish members as agents",
        about=_SERVE_ABOUT,
        examples=_SERVE_EXAMPLES,
    )
    add = serve.add_argument
    add_member_options(serve)
    add_state(serve)
    publish_help = "a member that agreed to be published; several times for several"
    add("--publish", action="append", default=[], metavar="MEMBER", required=True, help=publish_help)
    add_listen_address(serve, 8790)
    add(
        "--public-url",
        metavar="URL",
        help="where callers reach this, a proxy perhaps: what cards say (default: where it listens)",
    )
    add_tls_options(serve)
    add("--share-reasoning", action="store_true", help="tell callers what members reason")
    private_help = "allow push notifications to private addresses, also by http://"
    add("--allow-private-push", action="store_true", help=private_help)
    limit_help = "another limit, by the name that refusals and the docs have, as max_open_tasks=200"
    add("--limit", action="append", default=[], metavar="NAME=NUMBER", help=limit_help)
    add_log_level(serve)
    serve.set_defaults(run=run_serve)


def _is_former(name: str, former: Mapping[str, str]) -> bool:
    """Whether it was a limit once; then a line says what holds."""
    if (module := former.get(name)) is None:
        return False
    constant = getattr(import_module(f"moot.agents.a2a.{module}"), name.upper())
    print(f"--limit {name} is not a setting any more: it is {constant:g}", file=sys.stderr)
    return True


def _tell_former(given: list[str]) -> None:
    """What `moot a2a join --limit` once set; raises UsageError for what it never did."""
    for each in given:
        if not _is_former(each.partition("=")[0], _FORMER_OF_JOIN):
            raise UsageError(f"--limit {each}: no such limit. There is none to set")


def _limits(given: list[str]) -> dict[str, Any]:
    """The settings that were given; raises UsageError."""
    from moot.agents.a2a.a2a_settings import ServeSettings

    known = {each.name: each.default for each in dataclasses.fields(ServeSettings) if each.type == "int"}
    limits: dict[str, int] = {}
    for each in given:
        name, _, text = each.partition("=")
        if _is_former(name, _FORMER_OF_SERVE):
            continue
        if name not in known:
            raise UsageError(f"--limit {each}: no such limit. There are: {', '.join(known)}")
        number = int(text) if text.isdecimal() else 0
        if number < 1:
            raise UsageError(f"--limit {each}: a whole number above 0, as {name}={known[name]}")
        limits[name] = number
    return limits


def run_join(options: argparse.Namespace) -> int:
    check_installed("a2a")
    return run_service(_join(options))


def run_serve(options: argparse.Namespace) -> int:
    check_installed("a2a")
    return run_service(_serve(options))


async def _join(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.agents.a2a.a2a_member import A2aMember
    from moot.agents.a2a.a2a_settings import JoinSettings
    from moot.participant import token_from
    from moot.participant.programs.member_program import run_member
    from moot.protocol.close_codes import SHUT_DOWN

    if options.require_signature and options.card_keys is None:
        raise UsageError("--require-signature needs the keys that sign the card: --card-keys FILE")
    logs.set_up(options.log_level, "text", None)
    _tell_former(options.limit)
    where = member_settings_of(options)
    settings = JoinSettings(
        url=options.url,
        gateway=where.url,
        space=where.space,
        token=where.token.reveal(),
        name=where.name,
        agent_token=None if options.agent_token_file is None else token_from(options.agent_token_file),
        state_folder=_state_folder(options, where, "join", options.url),
        card_keys=options.card_keys,
        require_signature=options.require_signature,
        allowed_origins=tuple(options.allow_origin),
        allow_plain_http=options.allow_plain_http,
        answers=options.answers,
        style=options.style,
    )
    ending = await run_member(lambda: A2aMember(settings), settings, on_joined=_print_joined)
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    # A shutdown is no failure; being removed is.
    return 0 if ending.code == SHUT_DOWN else 1


def _print_joined(member: A2aMember, me: str) -> None:
    where = member.settings.space or "the space"
    print(f"{printable(member.statement())}\nJoined {where} as {me}.", flush=True)


async def _serve(options: argparse.Namespace) -> int:
    from moot import logs
    from moot.agents.a2a.a2a_server import published
    from moot.agents.a2a.a2a_settings import ServeSettings
    from moot.agents.a2a.card_signer import KEYS_PATH
    from moot.config.notification_reader import read_public_url
    from moot.net.http_listener import bind_socket, serve_http
    from moot.net.server_tls import ServerTls
    from moot.operations.text.call_text import console_address
    from moot.participant import connect
    from moot.protocol.close_codes import SHUT_DOWN

    if not 0 <= options.port <= 65_535:
        raise UsageError(f"--port {options.port}: a port is a number from 0 to 65535")
    for member in options.publish:
        if not member or not all(each.isalnum() or each in "-_." for each in member) or member in (".", ".."):
            raise UsageError(f"--publish {member!r}: only letters, digits and - _ . can be in a path")
    limits = _limits(options.limit)
    public_url = options.public_url and read_public_url(options.public_url, "--public-url")
    if not public_url and options.host in ("0.0.0.0", "::", ""):  # noqa: S104  # an address that is refused
        raise UsageError(
            f"--host {options.host}: cards have to say where callers reach this: --public-url https://HOST:PORT"
        )
    where = member_settings_of(options)
    files = tls_files_of(options)
    tls = None if files is None else ServerTls(files)
    if tls is None and options.host not in ("127.0.0.1", "::1", "localhost"):
        warn_without_tls(f"--host {options.host}")
    logs.set_up(options.log_level, "text", None)
    with bind_socket(options.host, options.port, host_name="--host", port_name="--port") as listening:
        host = f"[{options.host}]" if ":" in options.host else options.host
        address = f"{'http' if tls is None else 'https'}://{host}:{listening.getsockname()[1]}"
        settings = ServeSettings(
            gateway=where.url,
            space=where.space,
            token=where.token.reveal(),
            name=where.name,
            members=tuple(dict.fromkeys(options.publish)),
            public_url=(public_url or address).rstrip("/"),
            state_folder=_state_folder(options, where, "serve", *options.publish),
            console=console_address(where.url),
            share_reasoning=options.share_reasoning,
            allow_private_push=options.allow_private_push,
            **limits,
        )
        async with (
            connect(settings.gateway, settings.space, settings.token, name=settings.name) as space,
            published(space, settings) as app,
            serve_http(app, listening, tls=tls),
        ):
            for member in settings.members:
                card = f"{settings.public_url}/{member}/.well-known/agent-card.json"
                away = "" if member in space.roster else f" ({member} is not in the space at the moment)"
                print(f"{space.me}: {member} is published at {card}{away}", flush=True)
            print(f"Cards are signed; the key is at {settings.public_url}{KEYS_PATH}", flush=True)
            ending = await space.stay()
    print(f"left the space: {ending.code} {printable(ending.reason)}".rstrip(), flush=True)
    return 0 if ending.code == SHUT_DOWN else 1


def _state_folder(options: argparse.Namespace, where: ConnectSettings, *what: str) -> Path:
    """One for each member and agent: two must not share their tasks."""
    if options.state is not None:
        return Path(options.state)
    return state_folder(os.environ) / "moot" / "a2a" / digest_of_member(options, where, *what)
