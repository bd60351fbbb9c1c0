"""`moot tail`: everything that is said in a space, as it is said."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from moot.cli.client.connect_options import add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_json, add_latest
from moot.cli.process import program
from moot.protocol.envelope import Envelope

if TYPE_CHECKING:
    from moot.participant import MissedMessages

_EXAMPLES = """\
  moot tail -n 50
  moot tail --json --kind 'mcp/*' | jq .payload.method
  moot tail --from agent --kind chat --count 1 --json     wait for the agent's next words
"""


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="watch what is said in a space",
        about="Prints every message of a space as it comes, until Ctrl-C or --count. Whoever watches "
        "says nothing and answers nothing. What members wrote is shown with control characters escaped.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add_latest(parser, 0)
    add("--kind", action="append", default=[], metavar="KIND", help="only these kinds; * matches anything")
    add("--from", dest="sender", action="append", default=[], metavar="NAME", help="only from these")
    add("--count", type=int, metavar="N", help="end after so many")
    add("--all", action="store_true", help="also what only programs care for: progress, acknowledgements, …")
    add_json(parser)
    add_connect_options(parser)
    parser.set_defaults(run=run_tail)


@program.tells_errors
def run_tail(options: argparse.Namespace) -> int:
    from moot.cli.process.interruption import run_errand

    return run_errand(_tail(options))


async def _tail(options: argparse.Namespace) -> int:
    from moot.cli.client.screen import Screen
    from moot.errors import ConnectionClosed
    from moot.participant import MissedMessages, connect

    where = connect_settings_of(options)
    screen, shown = Screen(as_json=options.json, verbose=options.all), 0
    async with connect(where.url, where.space, where.token.reveal(), name=where.name, passive=True) as space:
        # Before anything is waited for: from here on nothing is missed.
        coming = space.envelopes(own=True)
        before = await space.recall() if options.n > 0 else []
        async for item in _messages(before, coming, options):
            if isinstance(item, MissedMessages):
                screen.gap(item)
            elif screen.envelope(item):
                shown += 1
                if options.count is not None and shown >= options.count:
                    return 0
        ending = await space.stay()
    raise ConnectionClosed(ending.code, ending.reason)


async def _messages(
    before: list[Envelope], coming: AsyncIterator[Envelope | MissedMessages], options: argparse.Namespace
) -> AsyncIterator[Envelope | MissedMessages]:
    """What is wanted of the latest ones that the gateway remembers, then of those that come."""
    for envelope in [each for each in before if _wanted(each, options)][-options.n :]:
        yield envelope
    async for item in coming:
        if not isinstance(item, Envelope) or _wanted(item, options):
            yield item


def _wanted(envelope: Envelope, options: argparse.Namespace) -> bool:
    kinds, senders = options.kind, options.sender
    return (not kinds or any(fnmatchcase(envelope.kind, kind) for kind in kinds)) and (
        not senders or envelope.sender in senders
    )
