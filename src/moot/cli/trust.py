"""`moot trust`: look at rules and suggestions, accept, narrow, dismiss, stop. As a person of the space."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli.client import add_where, where_of
from moot.cli.escape_output import printable
from moot.errors import TimedOut, UsageError

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SentEnvelope
    from moot.protocol.envelope import Envelope

_EXAMPLES: Final = """\
examples:
  moot trust suggestions                what the decisions so far would bear, with what it rests on
  moot trust accept s-3fa1              take it as it is; --narrow FILE takes a narrower one
  moot trust accept s-3fa1 --grant      give the agent the right itself instead; `moot revoke` takes it back
  moot trust dismiss s-3fa1             nothing like it is suggested again
  moot trust rules                      what decides now, how often it did, and what is suspended
  moot trust stop                       the switch: nothing is decided by rules any more
  moot trust stop reports --reason "odd file names"
  moot trust stop --about 3f1c-77       the rule that decided this proposal
  moot trust lift reports               a suspended rule holds again
  moot trust resume                     after stop
  moot trust report                     the share of decisions that was automatic, day by day
"""

# `s-` and four characters more.
_LEAST_PREFIX: Final = 6

Act = Callable[["JoinedSpace", argparse.Namespace], Awaitable[Any]]


def add_commands(commands: Any) -> None:
    parser = commands.add_parser(
        "trust",
        help="rules that decide on proposals: look, accept, dismiss, stop",
        description="Talks to the approver of a space (`moot approver`). What you say is seen by everybody, "
        "and needs the capability for it: trust/accept, trust/dismiss, trust/stop; looking needs mcp/request "
        "to the approver.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _action(actions, "suggestions", _suggestions, "the rules that are suggested")
    _action(actions, "rules", _rules, "the rules and how they stand")
    _action(actions, "report", _report, "how much is automatic, and how rules did in the shadow")
    accept = _action(actions, "accept", _accept, "make a suggestion a rule")
    accept.add_argument("suggestion", metavar="ID")
    accept.add_argument("--narrow", type=Path, metavar="FILE", help="a rule in YAML that takes less")
    accept.add_argument(
        "--grant", action="store_true", help="grant the right to the agent itself, for these arguments"
    )
    dismiss = _action(actions, "dismiss", _dismiss, "refuse a suggestion for good")
    dismiss.add_argument("suggestion", metavar="ID")
    dismiss.add_argument("--reason", default="", metavar="TEXT")
    stop = _action(actions, "stop", _stop, "suspend a rule, or all of them at once")
    stop.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to stop them all")
    stop.add_argument("--about", metavar="ID", help="the proposal that a rule should not have decided")
    stop.add_argument("--reason", default="", metavar="TEXT")
    lift = _action(actions, "lift", _lift, "let a suspended rule hold again")
    lift.add_argument("rule", metavar="RULE")
    _action(actions, "resume", _resume, "let rules decide again after stop")


def _action(actions: Any, name: str, act: Act, help: str) -> Any:
    parser = actions.add_parser(name, help=help, description=f"{help[:1].upper()}{help[1:]}.")
    parser.add_argument("--approver", default="approver", metavar="NAME", help="its name (default approver)")
    parser.add_argument("--json", action="store_true", help="one JSON value instead of words")
    add_where(parser)
    parser.set_defaults(run=_run, act=act)
    return parser


def _run(chosen: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import show_fault
    from moot.cli.interruption import run_errand
    from moot.errors import MootError

    try:
        found = run_errand(_perform(chosen))
    except MootError as fault:
        return show_fault(fault, as_json=chosen.json)
    if chosen.json:
        print(json.dumps(found, ensure_ascii=False))
    return 0


async def _perform(chosen: argparse.Namespace) -> Any:
    from moot.participant import connect

    where = where_of(chosen)
    token = where.token.reveal()
    async with connect(where.url, where.space, token, passive=True, reconnect=False) as space:
        return await chosen.act(space, chosen)


def _check_here(space: JoinedSpace, chosen: argparse.Namespace) -> None:
    if chosen.approver not in space.roster:
        raise UsageError(
            f"no member {chosen.approver} is here, so nothing was done: start `moot approver`, or name"
            " another one with --approver"
        )


async def _asked(space: JoinedSpace, chosen: argparse.Namespace, tool: str) -> dict[str, Any]:
    _check_here(space, chosen)
    outcome = await space.call(chosen.approver, tool, {})
    answer = outcome.structured
    if not isinstance(answer, dict):
        raise UsageError(f"{chosen.approver} is no approver: it answered {tool} with something else")
    return answer


async def _suggestions(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    from moot.tui.rule_lines import suggestion_lines
    from moot.tui.trust_log import SuggestionEntry

    found = (await _asked(space, chosen, "trust_suggestions"))["suggestions"]
    if not chosen.json:
        if not found:
            print("nothing is suggested")
        for each in found:
            shown = SuggestionEntry(each["suggestion"], each, chosen.approver, "")
            print(printable(f"{shown.name}  {shown.words}"))
            for line in suggestion_lines(shown):
                print(printable(f"    {line}"))
    return found


async def _rules(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    found = await _asked(space, chosen, "trust_rules")
    if not chosen.json:
        if found["stopped"] is not None:
            print(printable(f"STOPPED by {found['stopped']['by']}: {found['stopped']['why']}"))
        if found["fault"] is not None:
            print(printable(f"the rules cannot be read: {found['fault']}"))
        if found["shadow"]:
            print("in the shadow: nothing is decided")
        for each in found["rules"]:
            rule = each["rule"]
            left = "" if each["left"] is None else f", {each['left']} left"
            print(printable(f"{rule['name']}  {each['state']}, decided {each['hits']} times{left}"))
            print(printable(f"    {each['words']}"))
            if each["why"]:
                print(printable(f"    since {each['why']}"))
        if not found["rules"]:
            print("there are no rules")
    return found


async def _report(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    found = await _asked(space, chosen, "trust_report")
    if not chosen.json:
        print(f"{'day':12}{'people':>8}{'rules':>8}{'automatic':>11}")
        for day in found["days"]:
            bar = "#" * round(day["share"] * 40)
            print(f"{day['day']:12}{day['people']:8}{day['rules']:8}{day['share']:11.0%}  {bar}")
        for name, record in found["shadow"].items():
            said = f"{record['agreements']} as predicted, {record['conflicts']} otherwise"
            print(printable(f"{name} in the shadow: {said}; wrong in {record['error_bound']:.0%} at most"))
    return found


async def _accept(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    suggestion = await _suggestion(space, chosen)
    payload: dict[str, Any] = {"suggestion": chosen.suggestion}
    if chosen.narrow is not None:
        payload["rule"] = _narrowed(chosen.narrow)
    if chosen.grant:
        if suggestion is None:
            raise UsageError(
                f"--grant needs to look at the suggestion: you may not ask {chosen.approver} for it"
                " (mcp/request)"
            )
        grant = suggestion["grant"]
        if grant is None:
            raise UsageError(f"it cannot be granted: {suggestion['no_grant']}. Accept it as a rule instead")
        given = await space.grant(
            grant["participant"], [grant["capability"]], reason=f"suggestion {chosen.suggestion}"
        )
        payload |= {"granted": True, "grant": given.id}
        sent, _ = await _answered(space, chosen, "trust/accept", payload)
        if not chosen.json:
            back = f"moot revoke {grant['participant']} --grant {given.id}"
            print(printable(f"granted: {grant['words']}. Take it back with: {back}"))
        return {"accepted": chosen.suggestion, "grant": given.id, "envelope": sent.id}
    sent, answer = await _answered(space, chosen, "trust/accept", payload)
    rule = answer.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else None
    if not chosen.json:
        holds = f"rule {name} decides from now on" if name else "`moot trust rules` shows whether it holds"
        print(printable(f"accepted {chosen.suggestion}; {holds}"))
    return {"accepted": chosen.suggestion, "rule": name, "envelope": sent.id}


async def _suggestion(space: JoinedSpace, chosen: argparse.Namespace) -> dict[str, Any] | None:
    """The suggestion that is named; None if we may not look. Raises UsageError if there is none of that name.

    The beginning of an id is enough: `chosen.suggestion` is all of it from here on.
    """
    _check_here(space, chosen)
    if not space.may_request(chosen.approver, "tools/call", {"name": "trust_suggestions", "arguments": {}}):
        return None
    found = (await _asked(space, chosen, "trust_suggestions"))["suggestions"]
    named = [each for each in found if each["suggestion"] == chosen.suggestion]
    # As of a proposal: less of an id could come to mean another one.
    like = named or [each for each in found if each["suggestion"].startswith(chosen.suggestion)]
    if not named and len(chosen.suggestion) < _LEAST_PREFIX:
        like = []
    if len(like) != 1:
        ids = ", ".join(each["suggestion"] for each in like or found)
        there = f"there is {ids}" if ids else "nothing is suggested"
        what = "several suggestions begin with" if like else "there is no suggestion"
        raise UsageError(f"{what} {chosen.suggestion}: {there}")
    chosen.suggestion = like[0]["suggestion"]
    one: dict[str, Any] = like[0]
    return one


def _narrowed(file: Path) -> Any:
    from moot.trust.rule_yaml import read_rules, rule_as_json

    try:
        rules = read_rules(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file} cannot be read: {fault}") from None
    if len(rules) != 1:
        raise UsageError(f"{file} holds {len(rules)} rules; it has to hold the one that you accept")
    return rule_as_json(rules[0])


async def _dismiss(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    from moot.tui.rule_commands import said

    looked = await _suggestion(space, chosen)
    payload = {"suggestion": chosen.suggestion} | ({"reason": chosen.reason} if chosen.reason else {})
    # A dismissal is carried out in silence; who could not look waits for a word that it was not.
    listened = chosen.approver if looked is None else None
    sent, answer = await said(space, "trust/dismiss", payload, to="", about="", approver=listened)
    _check_agreed(chosen, answer)
    return _shown(chosen, "trust/dismiss", sent, f"dismissed {chosen.suggestion}")


async def _stop(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    from moot.tui.rule_commands import said

    payload: dict[str, Any] = {"reason": chosen.reason} if chosen.reason else {}
    if chosen.rule:
        payload["rule"] = chosen.rule
    if chosen.approver not in space.roster:
        # Said all the same: an approver that comes back obeys a stop that it missed.
        sent, _ = await said(space, "trust/stop", payload, to="", about=chosen.about or "", approver=None)
        away = f"said, but no member {chosen.approver} is here: it takes effect when one comes"
        return _shown(chosen, "trust/stop", sent, away)
    sent, answer = await _answered(space, chosen, "trust/stop", payload, about=chosen.about or "")
    rule = answer.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else rule
    words = f"rule {name} is suspended" if name else "all rules are stopped; people decide everything"
    if chosen.about and not name:
        words = f"no rule is known behind {chosen.about}, so {words}"
    return _shown(chosen, "trust/stop", sent, words)


async def _lift(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    _check_here(space, chosen)
    sent, _ = await _answered(space, chosen, "trust/accept", {"lift": chosen.rule})
    return _shown(chosen, "trust/accept", sent, f"rule {chosen.rule} decides again")


async def _resume(space: JoinedSpace, chosen: argparse.Namespace) -> Any:
    _check_here(space, chosen)
    sent, _ = await _answered(space, chosen, "trust/accept", {"resume": True})
    return _shown(chosen, "trust/accept", sent, "rules decide again")


def _shown(chosen: argparse.Namespace, kind: str, sent: SentEnvelope, words: str) -> Any:
    if not chosen.json:
        print(printable(words))
    return {"kind": kind, "envelope": sent.id}


async def _answered(
    space: JoinedSpace, chosen: argparse.Namespace, kind: str, payload: Any, about: str = ""
) -> tuple[SentEnvelope, Envelope]:
    """Said to all, and what the approver answered; raises UsageError when it says no, TimedOut if nothing."""
    from moot.tui.rule_commands import ANSWER_SECONDS, said

    sent, answer = await said(space, kind, payload, to="", about=about, approver=chosen.approver)
    _check_agreed(chosen, answer)
    if answer is None:
        raise TimedOut(
            f"{chosen.approver} has not answered within {ANSWER_SECONDS:g} s; `moot trust rules` shows"
            " whether it acted"
        )
    return sent, answer


def _check_agreed(chosen: argparse.Namespace, answer: Envelope | None) -> None:
    if answer is not None and answer.kind == "chat":
        raise UsageError(f"{chosen.approver}: {answer.payload.get('text')}")
