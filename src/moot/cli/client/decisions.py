"""`moot decisions`: who decided what, when and why, as the gateway's journal tells it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from moot.cli.client.connect_options import CONNECT_HELP, add_connect_options, connect_settings_of
from moot.cli.options.shared_options import add_decision_filters, add_json
from moot.cli.process import program

if TYPE_CHECKING:
    from moot.operations.text.text_table import TextTable

_EXAMPLES: Final = """\
  moot decisions --since 7d                              what was decided in a week
  moot decisions --tool deploy --how approved --since 7d who approved deploy last week
  moot decisions --by ana --json
  moot decisions --since 2026-11-01 --csv > november.csv
"""
# As people say it; the wire says fulfilled.
_HOW: Final = {
    "approved": "fulfilled",
    **{each: each for each in ("rejected", "withdrawn", "expired", "pending")},
}


def add_command(commands: Any, name: str) -> None:
    parser = program.add_command(
        commands,
        name,
        help="report who approved or rejected what, when and why",
        about="Asks the gateway for the decisions on the latest 10,000 proposals of a space; you see those "
        "that were made since you belong to it. `moot proposal history` reads a journal on this machine.",
        examples=f"{_EXAMPLES}\n{CONNECT_HELP}",
    )
    add_decision_filters(parser, sorted(_HOW))
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--csv", action="store_true", help="print CSV, for spreadsheets")
    add_connect_options(parser)
    parser.set_defaults(run=_report)


@program.tells_errors
def _report(options: argparse.Namespace) -> int:
    from moot.cli.client.gateway_request import request_accepted, request_json
    from moot.cli.process.table_output import print_table

    settings = connect_settings_of(options)
    token, path = settings.token.reveal(), f"spaces/{quote(settings.space, safe='')}/decisions"
    params = _params(options)
    if options.csv:
        params |= {"format": "csv"}
        sys.stdout.write(request_accepted("GET", settings.url, path, token, params=params).text)
        return 0
    found = request_json("GET", settings.url, path, token, params=params)
    if options.json:
        print(json.dumps(found["decisions"]))
        return 0
    if found["decisions"]:
        print_table(decision_table(found["decisions"], "decided"))
    else:
        print("no such decision")
    if found.get("gap"):
        print(
            "some are missing: the journal of this gateway does not have all. It is off, or another gateway"
        )
        print("of the cluster has them")
    if found["left_out"]:
        print(f"{found['left_out']} earlier ones are left out: --since and --until choose")
    return 0


def _params(options: argparse.Namespace) -> dict[str, str]:
    from moot.protocol.envelope import rfc3339

    given = {name: getattr(options, name) for name in ("by", "proposer", "tool", "rule")}
    given |= {
        name: None if getattr(options, name) is None else rfc3339(getattr(options, name))
        for name in ("since", "until")
    }
    given["how"] = ",".join(_HOW[each] for each in options.how) or None
    return {name: value for name, value in given.items() if value is not None}


def decision_table(decisions: Sequence[dict[str, Any]], moment: str) -> TextTable:
    """Decisions as they are exported, each with the moment that it is listed by: `proposed` or `decided`."""
    from moot.operations.text.text_table import TextTable

    headings = (moment.upper(), "PROPOSER", "CALL", "DECISION", "BY", "AFTER", "RULE", "RESULT")
    rows = [_row(each, f"{moment}_at") for each in decisions]
    return TextTable(headings, rows, [_details(each) for each in decisions], right={5})


def _row(each: dict[str, Any], moment: str) -> tuple[str, ...]:
    how = {"fulfilled": "approved", "open": "pending"}.get(each["status"], each["status"])
    # What its host answered, or who said in its place what came of it.
    said = f"{each['outcome']}, says {each['settled_by']}" if each["settled_by"] else each["result"]
    return (
        (each[moment] or "")[:16].replace("T", " "),
        each["proposer"],
        each["tool"] or each["method"] or "?",
        f"{how} with changes" if each["original_arguments"] is not None else how,
        each["decided_by"] or "",
        "" if each["seconds"] is None else f"{each['seconds']:.0f} s",
        each["rule"] or "",
        said or each["outcome"] or "",
    )


def _details(each: dict[str, Any]) -> list[str]:
    lines = [f"{each['id']}  {_short(each['arguments'])}"]
    if each["original_arguments"] is not None:
        lines.append(f"proposed: {_short(each['original_arguments'])}")
    if each["votes"]:
        lines.append(f"votes: {', '.join(each['votes'])}")
    return [*lines, *([f"reason: {each['reason']}"] if each["reason"] else [])]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 120 else text[:119] + "…"
