"""What people decide about rules: accept, narrow, dismiss, review, observe, stop, resume."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moot.cli.rules.approver_client import (
    ask_approver,
    check_agreed,
    check_here,
    find_suggestion,
    tell_approver,
)
from moot.cli.table_output import print_table
from moot.errors import MootError, TimedOut, UsageError
from moot.operations.terminal_escape import printable
from moot.operations.text_table import TextTable

if TYPE_CHECKING:
    from moot.participant import JoinedSpace, SentEnvelope


async def accept(space: JoinedSpace, options: argparse.Namespace) -> Any:
    suggestion = await find_suggestion(space, options)
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
        sent, _ = await tell_approver(space, options, "trust/accept", payload)
        if not options.json:
            back = f"moot member revoke {grant['participant']} --grant {given.id}"
            print(printable(f"granted: {grant['words']}. Take it back with: {back}"))
        return {"id": sent.id, "suggestion_id": options.suggestion, "rule": None, "grant_id": given.id}
    sent, answer = await tell_approver(space, options, "trust/accept", payload)
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


def _read_narrowed_rule(file: Path) -> Any:
    from moot.config.strict_yaml import read_yaml
    from moot.trust.rules.rule_yaml import read_rules, rule_as_json, rule_of_json

    try:
        text = file.read_text("utf-8")
        value = read_yaml(text)
        if isinstance(value, dict) and "rules" not in value:
            # The rule alone, as `moot rules suggestions` shows it.
            return rule_as_json(rule_of_json(value))
        rules = read_rules(text)
    except (OSError, UnicodeDecodeError) as fault:
        raise UsageError(f"{file} cannot be read: {fault}") from None
    if len(rules) != 1:
        raise UsageError(f"{file} holds {len(rules)} rules; it has to hold the one that you accept")
    return rule_as_json(rules[0])


async def review(space: JoinedSpace, options: argparse.Namespace) -> Any:
    reviews = (await ask_approver(space, options, "trust_reviews"))["reviews"]
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
    sent, _ = await tell_approver(space, options, "trust/accept", {"reviewed": shown})
    if not options.json:
        print(f"reviewed {len(shown)} {'decision' if len(shown) == 1 else 'decisions'}")
    return {"id": sent.id, "kind": "trust/accept", "reviewed": shown}


async def dismiss(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.operations.rule_commands import send_and_wait

    looked = await find_suggestion(space, options)
    payload = {"suggestion": options.suggestion} | ({"reason": options.reason} if options.reason else {})
    # A dismissal is carried out in silence; who could not look waits for a word that it was not.
    listened = options.approver if looked is None else None
    sent, answer = await send_and_wait(space, "trust/dismiss", payload, to="", about="", approver=listened)
    check_agreed(options, answer)
    return _print_sent(options, "trust/dismiss", sent, f"dismissed {options.suggestion}")


async def stop(space: JoinedSpace, options: argparse.Namespace) -> Any:
    """Done only when the approver says that it is: it writes a stop to disk, then confirms it."""
    from moot.operations.rule_commands import ANSWER_SECONDS, send_and_wait

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
    check_agreed(options, answer)
    if answer is None or answer.payload.get("state") not in ("stopped", "suspended", "removed"):
        raise TimedOut(
            f"not confirmed: the stop {sent.id} was sent, but {options.approver} has not confirmed it within"
            f" {ANSWER_SECONDS:g} s. Repeat it, look at `moot rules list`, or remove the approver:"
            f" moot member kick {options.approver}"
        )
    rule = answer.payload.get("rule")
    name = rule.get("name") if isinstance(rule, dict) else rule
    now = "forgotten" if answer.payload.get("state") == "removed" else "suspended"
    words = f"rule {name} is {now}" if name else "all rules are stopped; people decide everything"
    if options.about and not name:
        words = f"no rule is known behind {options.about}, so {words}"
    return _print_sent(options, "trust/stop", sent, words)


async def resume(space: JoinedSpace, options: argparse.Namespace) -> Any:
    check_here(space, options)
    if options.all:
        return await _resume_all(space, options)
    payload, done = {"resume": True}, "rules decide again"
    if options.rule:
        payload, done = {"lift": options.rule}, f"rule {options.rule} decides again"
    sent, answer = await tell_approver(space, options, "trust/accept", payload)
    by = answer.payload.get("resumed_by")
    if isinstance(by, list):
        people = answer.payload.get("accepting_people")
        what = f"rule {options.rule} decides" if options.rule else "rules decide"
        done = f"resumed as {len(by)} of {people} people; {what} nothing until another person resumes, too"
    found = _print_sent(options, "trust/accept", sent, done)
    return {**found, "resumed_by": by, "accepting_people": people} if isinstance(by, list) else found


async def observe(space: JoinedSpace, options: argparse.Namespace) -> Any:
    check_here(space, options)
    payload = {"observe": options.rule, "on": options.switch == "on"}
    sent, answer = await tell_approver(space, options, "trust/accept", payload)
    done = f"rule {options.rule} {'only observes' if options.switch == 'on' else 'decides'}"
    if isinstance(by := answer.payload.get("resumed_by"), list):
        people = answer.payload.get("accepting_people")
        done = f"wanted by {len(by)} of {people} people; rule {options.rule} only observes until another does"
    return _print_sent(options, "trust/accept", sent, done)


async def _resume_all(space: JoinedSpace, options: argparse.Namespace) -> Any:
    """All that is suspended or stopped now; what trips while we ask stays suspended."""
    if options.rule:
        raise UsageError("name a rule, or --all")
    found = await ask_approver(space, options, "trust_rules")
    names = [each["rule"]["name"] for each in found["rules"] if each["state"] == "suspended"]
    if not names and found["stopped"] is None:
        raise UsageError("no rule is suspended, and rules are not stopped")
    sent = None
    if found["stopped"] is not None:
        sent, _ = await tell_approver(space, options, "trust/accept", {"resume": True})
    if names:
        sent, _ = await tell_approver(space, options, "trust/accept", {"lift": names})
    words = f"resumed {', '.join(names)}" if names else "rules decide again"
    if found.get("accepting_people", 1) > 1:
        words += "; another person may have to resume, too: `moot rules list` tells"
    if not options.json:
        print(printable(words))
    return {"id": None if sent is None else sent.id, "kind": "trust/accept", "resumed": names}


async def remove(space: JoinedSpace, options: argparse.Namespace) -> Any:
    check_here(space, options)
    payload = {"remove": options.rule} | ({"reason": options.reason} if options.reason else {})
    sent, _ = await tell_approver(space, options, "trust/accept", payload)
    return _print_sent(options, "trust/accept", sent, f"rule {options.rule} is gone")


async def ignore(space: JoinedSpace, options: argparse.Namespace) -> Any:
    """Arguments of a tool that do not matter, or that matter again."""
    found = await ask_approver(space, options, "trust_origins")
    known = dict.fromkeys(
        [*(each["tool"] for each in found["tools"]), *(each["pattern"] for each in found["lines"])]
    )
    names = [key for key in known if options.tool in (key, key.partition("/")[2])]
    if not names and "/" in options.tool:
        names = [options.tool]
    if len(names) != 1:
        several = f"several members have it: {', '.join(sorted(names))}" if names else "no member offers it"
        raise UsageError(f"{options.tool}: {several}; write MEMBER/TOOL")
    (key,) = names
    word = "matters" if options.undo else "ignore"
    sent, _ = await tell_approver(space, options, "trust/accept", {word: {key: options.argument}})
    now = "compared again" if options.undo else "not compared any more: any plain words will do"
    said = f"{', '.join(options.argument)} of {key}: {now}"
    return _print_sent(options, "trust/accept", sent, said) | {"tool": key}


def _print_sent(options: argparse.Namespace, kind: str, sent: SentEnvelope, words: str) -> Any:
    if not options.json:
        print(printable(words))
    return {"id": sent.id, "kind": kind}
