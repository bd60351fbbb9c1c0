"""The commands of `moot rules` that talk to the approver: list, accept, narrow, dismiss, stop, resume."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from moot.cli import program
from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.table_output import print_table
from moot.errors import MootError, TimedOut, UsageError
from moot.tui.terminal_escape import printable
from moot.tui.text_table import TextTable

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SentEnvelope
    from moot.protocol.envelope import Envelope

# `s-` and four characters more.
_LEAST_PREFIX: Final = 6

Act = Callable[["JoinedSpace", argparse.Namespace], Awaitable[Any]]


def add_actions(group: Any) -> None:
    """Add the commands that talk to the approver of a space."""
    _add_action(group, "list", _list, "list the rules with their state", "  moot rules list --json\n")
    _add_action(group, "suggestions", _suggestions, "list suggested rules", "  moot rules suggestions\n")
    accept = _add_action(
        group,
        "accept",
        _accept,
        "make a suggestion a rule",
        "  moot rules accept s-3fa1                       as it is suggested\n"
        "  moot rules accept s-3fa1 --narrow rule.yaml    a rule that covers less\n"
        "  moot rules accept s-3fa1 --grant               give the agent the right itself instead\n",
    )
    accept.add_argument("suggestion", metavar="ID")
    accept.add_argument("--narrow", type=Path, metavar="FILE", help="a rule in YAML that covers less")
    accept.add_argument(
        "--grant", action="store_true", help="grant the right to the agent itself, for these arguments"
    )
    dismiss = _add_action(
        group,
        "dismiss",
        _dismiss,
        "refuse a suggestion for good",
        '  moot rules dismiss s-3fa1 --reason "never without me"\n',
    )
    dismiss.add_argument("suggestion", metavar="ID")
    dismiss.add_argument("--reason", default="", metavar="TEXT")
    review = _add_action(
        group,
        "review",
        _review,
        "show what rules decided and nobody has reviewed, or say that it was right",
        "  moot rules review                              what nobody has reviewed yet\n"
        "  moot rules review --confirm 3f1c-77            all that was shown up to this one was right\n"
        "  moot rules stop --about 3f1c-77                this one was wrong\n",
    )
    review.add_argument("rule", nargs="?", metavar="RULE", help="only of this rule (default: all rules)")
    review.add_argument("--confirm", metavar="ID", help="the last of the decisions that were right")
    stop = _add_action(
        group,
        "stop",
        _stop,
        "suspend a rule, or all of them at once",
        "  moot rules stop                                nothing is decided by rules any more\n"
        '  moot rules stop reports --reason "odd file names"\n'
        "  moot rules stop --about 3f1c-77                the rule that decided this proposal\n",
    )
    stop.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to stop them all")
    stop.add_argument("--about", metavar="ID", help="the proposal that a rule should not have decided")
    stop.add_argument("--reason", default="", metavar="TEXT")
    resume = _add_action(
        group,
        "resume",
        _resume,
        "let a suspended rule, or all rules after a stop, decide again",
        "  moot rules resume reports                      a rule that was suspended\n"
        "  moot rules resume                              all of them, after `moot rules stop`\n",
    )
    resume.add_argument("rule", nargs="?", metavar="RULE", help="leave it out to undo a stop of them all")
    _add_action(
        group,
        "report",
        _report,
        "show how much is automatic, and how rules did in shadow mode",
        "  moot rules report\n",
    )


def _add_action(group: Any, name: str, act: Act, help: str, examples: str) -> Any:
    parser = program.add_command(group, name, help=help, examples=f"{examples}\n{CONNECT_HELP}")
    parser.add_argument("--approver", default="approver", metavar="NAME", help="its name (default approver)")
    parser.add_argument("--json", action="store_true", help="print one JSON value, for programs")
    add_connect_options(parser)
    parser.set_defaults(run=_run, act=act)
    return parser


def _run(options: argparse.Namespace) -> int:
    from moot.cli.client.operation_output import print_error
    from moot.cli.interruption import run_errand

    try:
        found = run_errand(_perform(options))
    except MootError as fault:
        return print_error(fault, as_json=options.json)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    return 0


async def _perform(options: argparse.Namespace) -> Any:
    from moot.participant import connect

    settings = connect_settings_of(options)
    token = settings.token.reveal()
    url, space_name, name = settings.url, settings.space, settings.name
    async with connect(url, space_name, token, name=name, passive=True, reconnect=False) as space:
        return await options.act(space, options)


def _check_here(space: JoinedSpace, options: argparse.Namespace) -> None:
    if options.approver not in space.roster:
        raise MootError(
            f"no member {options.approver} is here, so nothing was done: start `moot rules run`, or name"
            " another one with --approver"
        )


async def _ask(space: JoinedSpace, options: argparse.Namespace, tool: str) -> dict[str, Any]:
    _check_here(space, options)
    outcome = await space.call(options.approver, tool, {})
    answer = outcome.structured
    if not isinstance(answer, dict):
        raise MootError(f"{options.approver} is no approver: it answered {tool} with something else")
    return answer


async def _suggestions(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.tui.rule_lines import suggestion_lines
    from moot.tui.trust_log import SuggestionEntry

    found = (await _ask(space, options, "trust_suggestions"))["suggestions"]
    if not options.json:
        entries = [SuggestionEntry(each["suggestion"], each, options.approver, "") for each in found]
        if entries:
            rows = [(each.name, each.text) for each in entries]
            print_table(TextTable(("SUGGESTION", "RULE"), rows, [suggestion_lines(each) for each in entries]))
        else:
            print("nothing is suggested")
    return [_renamed(each, suggestion="id", words="description") for each in found]


async def _list(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await _ask(space, options, "trust_rules")
    if not options.json:
        if found["stopped"] is not None:
            print(printable(f"STOPPED by {found['stopped']['by']}: {found['stopped']['why']}"))
            if found.get("resumed_by"):
                print(printable(f"resumed by {', '.join(found['resumed_by'])}; another person has to, too"))
        if found["fault"] is not None:
            print(printable(f"the rules cannot be read: {found['fault']}"))
        if found["shadow"]:
            print("shadow mode: nothing is decided")
        if found.get("accepting_people", 1) > 1:
            print(f"{found['accepting_people']} people have to accept a rule")
        if found["rules"]:
            print_table(_rules_table(found["rules"]))
        else:
            print("there are no rules")
    rules = [
        {"name": each["rule"]["name"]}
        | _renamed(each, words="description", why="reason", hits="decisions", left="decisions_left")
        for each in found["rules"]
    ]
    stopped = None if found["stopped"] is None else _renamed(found["stopped"], why="reason", at="stopped_at")
    return {
        "rules": rules,
        "stopped": stopped,
        "error": found["fault"],
        "shadow": found["shadow"],
        "accepting_people": found.get("accepting_people", 1),
    }


def _rules_table(rules: list[Any]) -> TextTable:
    rows = [
        (
            each["rule"]["name"],
            each["state"],
            str(each["hits"]),
            "" if each["left"] is None else str(each["left"]),
        )
        for each in rules
    ]
    details = [_rule_details(each) for each in rules]
    return TextTable(("RULE", "STATE", "DECISIONS", "LEFT"), rows, details, right={2, 3})


def _rule_details(rule: dict[str, Any]) -> list[str]:
    lines = [rule["words"], *([f"since {rule['why']}"] if rule["why"] else [])]
    if rule.get("review_due"):
        lines.append(f"{rule['unreviewed']} decisions should be reviewed: moot rules review")
    by = rule.get("resumed_by")
    return [*lines, f"resumed by {', '.join(by)}; another person has to, too"] if by else lines


def _renamed(fields: dict[str, Any], **names: str) -> dict[str, Any]:
    """What the approver answered, in the field names of all commands."""
    return {names.get(name, name): value for name, value in fields.items()}


async def _report(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.cli.proposal.history import shares_table

    found = await _ask(space, options, "trust_report")
    if not options.json:
        print_table(shares_table(found["days"]))
        if found.get("rule_history"):
            print_table(_outcomes_table(found["rule_history"]))
        for name, record in found["shadow"].items():
            total = record["agreements"] + record["conflicts"]
            agreement = f"agrees with {record['agreements']} of {total} decisions"
            print(
                printable(f"{name} in shadow mode: {agreement}; error rate up to {record['error_bound']:.0%}")
            )
    return found


def _outcomes_table(days: list[Any]) -> TextTable:
    """Decisions, contradictions and suspensions of each rule, by day, the latest last."""
    rows = [
        (each["day"], each["rule"], *(str(each[key]) for key in ("automatic", "wrong", "tripped")))
        for each in days
    ]
    return TextTable(("DAY", "RULE", "AUTOMATIC", "WRONG", "SUSPENDED"), rows, right={2, 3, 4})


async def _accept(space: JoinedSpace, options: argparse.Namespace) -> Any:
    suggestion = await _find_suggestion(space, options)
    payload: dict[str, Any] = {"suggestion": options.suggestion}
    if options.narrow is not None:
        payload["rule"] = _read_narrowed_rule(options.narrow)
    if options.grant:
        if suggestion is None:
            raise UsageError(
                f"--grant needs to look at the suggestion: you may not ask {options.approver} for it"
                " (mcp/request)"
            )
        grant = suggestion["grant"]
        if grant is None:
            raise UsageError(f"it cannot be granted: {suggestion['no_grant']}. Accept it as a rule instead")
        given = await space.admin.grant(
            grant["participant"], [grant["capability"]], reason=f"suggestion {options.suggestion}"
        )
        payload |= {"granted": True, "grant": given.id}
        sent, _ = await _send_and_wait(space, options, "trust/accept", payload)
        if not options.json:
            back = f"moot member revoke {grant['participant']} --grant {given.id}"
            print(printable(f"granted: {grant['words']}. Take it back with: {back}"))
        return {"id": sent.id, "suggestion_id": options.suggestion, "rule": None, "grant_id": given.id}
    sent, answer = await _send_and_wait(space, options, "trust/accept", payload)
    if answer.kind == "trust/suggestion":
        return _print_half_accepted(options, sent, answer.payload)
    rule = answer.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else None
    if not options.json:
        holds = f"rule {name} decides from now on" if name else "`moot rules list` shows whether it holds"
        print(printable(f"accepted {options.suggestion}; {holds}"))
    return {"id": sent.id, "suggestion_id": options.suggestion, "rule": name, "grant_id": None}


def _print_half_accepted(options: argparse.Namespace, sent: SentEnvelope, suggestion: Any) -> Any:
    by, people = suggestion.get("accepted_by") or [], suggestion.get("accepting_people")
    if not options.json:
        print(
            printable(
                f"accepted {options.suggestion} as {len(by)} of {people} people; it decides nothing until"
                " another person accepts it, too"
            )
        )
    found = {"id": sent.id, "suggestion_id": options.suggestion, "rule": None, "grant_id": None}
    return {**found, "accepted_by": by, "accepting_people": people}


async def _find_suggestion(space: JoinedSpace, options: argparse.Namespace) -> dict[str, Any] | None:
    """The suggestion that is named; None if we may not look. Raises UsageError if there is none of that name.

    The beginning of an id is enough: `options.suggestion` is all of it from here on.
    """
    _check_here(space, options)
    if not space.may_request(options.approver, "tools/call", {"name": "trust_suggestions", "arguments": {}}):
        return None
    found = (await _ask(space, options, "trust_suggestions"))["suggestions"]
    named = [each for each in found if each["suggestion"] == options.suggestion]
    # As of a proposal: less of an id could come to mean another one.
    like = named or [each for each in found if each["suggestion"].startswith(options.suggestion)]
    if not named and len(options.suggestion) < _LEAST_PREFIX:
        like = []
    if len(like) != 1:
        ids = ", ".join(each["suggestion"] for each in like or found)
        there = f"there is {ids}" if ids else "nothing is suggested"
        what = "several suggestions begin with" if like else "there is no suggestion"
        raise UsageError(f"{what} {options.suggestion}: {there}")
    options.suggestion = like[0]["suggestion"]
    one: dict[str, Any] = like[0]
    return one


def _read_narrowed_rule(file: Path) -> Any:
    from moot.trust.rule_yaml import read_rules, rule_as_json

    try:
        rules = read_rules(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file} cannot be read: {fault}") from None
    if len(rules) != 1:
        raise UsageError(f"{file} holds {len(rules)} rules; it has to hold the one that you accept")
    return rule_as_json(rules[0])


async def _review(space: JoinedSpace, options: argparse.Namespace) -> Any:
    reviews = (await _ask(space, options, "trust_reviews"))["reviews"]
    decisions = [
        {"rule": each["rule"], **decision}
        for each in reviews
        if options.rule in (None, each["rule"])
        for decision in each["decisions"]
    ]
    if options.confirm is not None:
        return await _confirm_review(space, options, [each["id"] for each in decisions])
    if not options.json:
        if not decisions:
            print("there is nothing to review")
            return decisions
        rows = [(each["id"], each["rule"], each.get("proposer", "")) for each in decisions]
        details = [
            [f"{each.get('tool') or ''} {json.dumps(each.get('arguments', {}), ensure_ascii=False)}".strip()]
            for each in decisions
        ]
        print_table(TextTable(("PROPOSAL", "RULE", "PROPOSER"), rows, details))
        only = f" {options.rule}" if options.rule else ""
        print(f"all of this was right: moot rules review{only} --confirm {decisions[-1]['id']}")
        print("one of it was wrong: moot rules stop --about PROPOSAL")
    return decisions


async def _confirm_review(space: JoinedSpace, options: argparse.Namespace, ids: list[str]) -> Any:
    if options.confirm not in ids:
        raise UsageError(f"{options.confirm} does not wait for a review: `moot rules review` shows what does")
    # What a rule decided since that was shown stays unreviewed.
    shown = ids[: ids.index(options.confirm) + 1]
    sent, _ = await _send_and_wait(space, options, "trust/accept", {"reviewed": shown})
    if not options.json:
        print(f"reviewed {len(shown)} {'decision' if len(shown) == 1 else 'decisions'}")
    return {"id": sent.id, "kind": "trust/accept", "reviewed": shown}


async def _dismiss(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.tui.rule_commands import send_and_wait

    looked = await _find_suggestion(space, options)
    payload = {"suggestion": options.suggestion} | ({"reason": options.reason} if options.reason else {})
    # A dismissal is carried out in silence; who could not look waits for a word that it was not.
    listened = options.approver if looked is None else None
    sent, answer = await send_and_wait(space, "trust/dismiss", payload, to="", about="", approver=listened)
    _check_agreed(options, answer)
    return _print_sent(options, "trust/dismiss", sent, f"dismissed {options.suggestion}")


async def _stop(space: JoinedSpace, options: argparse.Namespace) -> Any:
    """Done only when the approver says that it is: it writes a stop to disk, then confirms it."""
    from moot.tui.rule_commands import ANSWER_SECONDS, send_and_wait

    payload: dict[str, Any] = {"reason": options.reason} if options.reason else {}
    if options.rule:
        payload["rule"] = options.rule
    here = options.approver in space.roster
    sent, answer = await send_and_wait(
        space,
        "trust/stop",
        payload,
        to="",
        about=options.about or "",
        approver=options.approver if here else None,
    )
    if not here:
        raise MootError(
            f"not confirmed: the stop {sent.id} was sent, but no member {options.approver} is here. An"
            " approver that comes back obeys it; if yours has another name, repeat it with --approver NAME"
        )
    _check_agreed(options, answer)
    if answer is None or answer.payload.get("state") not in ("stopped", "suspended"):
        raise TimedOut(
            f"not confirmed: the stop {sent.id} was sent, but {options.approver} has not confirmed it within"
            f" {ANSWER_SECONDS:g} s. Repeat it, look at `moot rules list`, or remove the approver:"
            f" moot member kick {options.approver}"
        )
    rule = answer.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else rule
    words = f"rule {name} is suspended" if name else "all rules are stopped; people decide everything"
    if options.about and not name:
        words = f"no rule is known behind {options.about}, so {words}"
    return _print_sent(options, "trust/stop", sent, words)


async def _resume(space: JoinedSpace, options: argparse.Namespace) -> Any:
    _check_here(space, options)
    payload, done = {"resume": True}, "rules decide again"
    if options.rule:
        payload, done = {"lift": options.rule}, f"rule {options.rule} decides again"
    sent, answer = await _send_and_wait(space, options, "trust/accept", payload)
    by = answer.payload.get("resumed_by")
    if isinstance(by, list):
        people = answer.payload.get("accepting_people")
        what = f"rule {options.rule} decides" if options.rule else "rules decide"
        done = f"resumed as {len(by)} of {people} people; {what} nothing until another person resumes, too"
    found = _print_sent(options, "trust/accept", sent, done)
    return {**found, "resumed_by": by, "accepting_people": people} if isinstance(by, list) else found


def _print_sent(options: argparse.Namespace, kind: str, sent: SentEnvelope, words: str) -> Any:
    if not options.json:
        print(printable(words))
    return {"id": sent.id, "kind": kind}


async def _send_and_wait(
    space: JoinedSpace, options: argparse.Namespace, kind: str, payload: Any, about: str = ""
) -> tuple[SentEnvelope, Envelope]:
    """Said to all, and what the approver answered; raises UsageError when it says no, TimedOut if nothing."""
    from moot.tui.rule_commands import ANSWER_SECONDS, send_and_wait

    sent, answer = await send_and_wait(space, kind, payload, to="", about=about, approver=options.approver)
    _check_agreed(options, answer)
    if answer is None:
        raise TimedOut(
            f"{options.approver} has not answered within {ANSWER_SECONDS:g} s; `moot rules list` shows"
            " whether it acted"
        )
    return sent, answer


def _check_agreed(options: argparse.Namespace, answer: Envelope | None) -> None:
    if answer is not None and answer.kind == "chat":
        raise MootError(f"{options.approver}: {answer.payload.get('text')}")
