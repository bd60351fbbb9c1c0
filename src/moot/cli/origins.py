"""`moot origins`: what tools are said to do, and what people endorse, in words and from the shell."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from moot.cli.options.time_argument import parse_end_time
from moot.cli.process import program
from moot.cli.process.table_output import print_table
from moot.cli.rules.approver_client import approver_of, ask_approver
from moot.cli.rules.client import Act, add_action
from moot.errors import UsageError
from moot.operations.text.terminal_escape import printable
from moot.operations.text.text_table import TextTable
from moot.protocol.origin_report import ENDORSE_KIND

if TYPE_CHECKING:
    from moot.participant import JoinedSpace

_ABOUT = """\
The approver of a space follows all messages, and tells for each argument of a call who said it first: a
person, the operator, a trusted look-up, others, or nobody. A rule with `ask: when_untrusted` approves calls
whose steering values people said, and leaves the rest to people. For that it has to know what tools do; of a
tool of which nobody said anything the worst is assumed. Changing that needs trust/accept, endorsing needs
moot/endorse; everybody sees both.
"""
_EXAMPLES = """\
  moot origins list                              what each tool is said to do, and what it claims
  moot origins set mail/read_email effect=reads outside=false
  moot origins set 'crm/*' returns=trusted effect=reads outside=false
  moot origins accept mail                       what the tools of mail claim, while they stay as they are
  moot origins forget mail/read_email
  moot origins endorse sales@example.org         this value is fine, for 12 hours at most
  moot origins endorse --source 3f1c-77 --until 2h --member agent
  moot origins endorsements
  moot origins revoke 9b2e-01
  moot origins show 3f1c-77                      where the values of a proposal came from
"""
_SET_HELP = """\
  returns=others|records|trusted
                               others: results contain what others write; records: others write in them, but
                               the tool keeps them and gives each its id, as a calendar does; trusted: a
                               look-up that your organisation keeps itself
  private=true|false           whether it reads private things
  effect=reads|writes|destroys
  outside=true|false           whether a call reaches somebody outside of the space
What you leave out stays as it was said, or is taken at its worst.
"""


def add_command(commands: Any, name: str) -> None:
    group = program.add_group(
        commands, name, help="what tools do, and whose values are fine", about=_ABOUT, examples=_EXAMPLES
    )

    def action(name: str, act: Act, help: str, more: str = "") -> Any:
        examples = [line for line in _EXAMPLES.splitlines(keepends=True) if line.split()[2] == name]
        return add_action(group, name, act, help, "".join(examples) + more)

    listed = action("list", print_tools, "what each tool is said to do, and what it claims")
    listed.add_argument("host", nargs="?", metavar="HOST[/TOOL]", help="only of this member, or this tool")
    set_ = action("set", set_traits, "say what a tool does", f"\n{_SET_HELP}")
    set_.add_argument("tool", metavar="HOST/TOOL", help="`*` stands for any")
    set_.add_argument("traits", nargs="+", metavar="KEY=VALUE", help="returns, private, effect, outside")
    what = "believe what tools claim (MCP's annotations), while they stay so"
    action("accept", accept_claims, what).add_argument("tool", metavar="HOST[/TOOL]")
    what = "take back what was said of a tool: the worst is assumed again"
    action("forget", forget_traits, what).add_argument("tool", metavar="HOST/TOOL")
    endorse = action("endorse", send_endorsement, "say that a value, or all that one message says, is fine")
    endorse.add_argument("value", nargs="?", metavar="VALUE", help="exactly this value")
    endorse.add_argument("--source", metavar="ID", help="all that this message says, instead of a value")
    endorse.add_argument("--task", metavar="ID", help="only for what this message asked for")
    endorse.add_argument("--member", metavar="NAME", help="only for calls of this member")
    endorse.add_argument(
        "--until", type=parse_end_time, metavar="TIME", help="until then, such as 2h (default and most: 12h)"
    )
    action("endorsements", print_endorsements, "what is endorsed now")
    action("revoke", revoke_endorsement, "take an endorsement back").add_argument("id", metavar="ID")
    what = "where the values of a proposal came from"
    action("show", show_proposal, what).add_argument("id", metavar="PROPOSAL")


async def print_tools(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await ask_approver(space, options, "trust_origins")
    tools = [each for each in found["tools"] if _is_wanted(each["tool"], options.host)]
    if options.json:
        return {**found, "tools": tools}
    if tools:
        rows = [(each["tool"], _state_of(each)) for each in tools]
        print_table(TextTable(("TOOL", "STATE"), rows, [_tool_lines(each) for each in tools]))
    else:
        print("no tools are known" if options.host is None else f"no tool of {options.host} is known")
    if not found["rules"]:
        print("no rule goes by origins: every call that no other rule approves asks (docs/topics/origins.md)")
    return None


def _state_of(tool: Any) -> str:
    if tool["changed"]:
        return "changed since"
    return "said" if tool["said"] else "not known"


def _tool_lines(tool: Any) -> list[str]:
    lines = [tool["words"] if tool["said"] else f"the worst is assumed: {tool['words']}"]
    if tool["claims"] is not None and tool["claims"]["traits"] != tool["traits"]:
        lines.append(f"claims: {tool['claims']['words']} (moot origins accept {tool['tool']})")
    return [printable(line) for line in lines]


def _is_wanted(tool: str, wanted: str | None) -> bool:
    return wanted in (None, tool, tool.partition("/")[0])


async def set_traits(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.origins.tool_traits import traits_from_json

    given: dict[str, Any] = {}
    for setting in options.traits:
        key, sign, text = setting.partition("=")
        if not sign:
            raise UsageError(f"{setting}: write KEY=VALUE, such as effect=reads")
        given[key] = {"true": True, "false": False}.get(text, text)
    traits_from_json(given, where=options.tool)
    found = await ask_approver(space, options, "trust_origins")
    before: Any = next((each["traits"] for each in found["lines"] if each["pattern"] == options.tool), {})
    return await _change(space, options, {options.tool: {**before, **given}})


async def accept_claims(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await ask_approver(space, options, "trust_origins")
    tools = [each for each in found["tools"] if _is_wanted(each["tool"], options.tool)]
    claims = {each["tool"]: each["claims"] for each in tools if each["claims"] is not None}
    if not claims:
        what = "claims nothing (it has no annotations)" if tools else "is not known"
        raise UsageError(f"{options.tool} {what}: say what it does with `moot origins set`")
    if not options.json:
        for tool, claim in claims.items():
            print(printable(f"{tool}: {claim['words']}"))
    changes = {tool: {**claim["traits"], "definition": claim["definition"]} for tool, claim in claims.items()}
    return await _change(space, options, changes)


async def forget_traits(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await ask_approver(space, options, "trust_origins")
    lines = [each["pattern"] for each in found["lines"]]
    if options.tool not in lines:
        there = ", ".join(lines) or "nothing"
        raise UsageError(f"nothing is said of {options.tool}; there is {there}")
    return await _change(space, options, {options.tool: None})


async def _change(space: JoinedSpace, options: argparse.Namespace, changes: dict[str, Any]) -> Any:
    sent, _ = await approver_of(space, options).tell("trust/accept", {"tools": changes})
    if not options.json:
        for tool in changes:
            print(printable(f"changed: {tool}"))
    return {"id": sent.id, "kind": "trust/accept", "tools": changes}


async def send_endorsement(space: JoinedSpace, options: argparse.Namespace) -> Any:
    from moot.protocol.envelope import rfc3339

    if (options.value is None) == (options.source is None):
        raise UsageError("name a value, or a message with --source ID")
    payload = {"value": options.value} if options.source is None else {"source": options.source}
    payload |= {key: getattr(options, key) for key in ("task", "member") if getattr(options, key)}
    if options.until is not None:
        payload["until"] = rfc3339(options.until)
    sent = await space.send(ENDORSE_KIND, payload, confirm=True)
    if not options.json:
        print(printable(f"endorsed; take it back with: moot origins revoke {sent.id}"))
    return {"id": sent.id, "kind": ENDORSE_KIND, **payload}


async def print_endorsements(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = (await ask_approver(space, options, "trust_origins"))["endorsements"]
    if not options.json:
        rows = [
            (each["id"], each["by"], each["until"], each.get("value") or f"all of {each.get('source')}")
            for each in found
        ]
        if rows:
            print_table(TextTable(("ENDORSEMENT", "BY", "UNTIL", "WHAT"), rows))
        else:
            print("nothing is endorsed")
    return found


async def revoke_endorsement(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = (await ask_approver(space, options, "trust_origins"))["endorsements"]
    if all(each["id"] != options.id for each in found):
        raise UsageError(f"{options.id} is no endorsement that holds: see `moot origins endorsements`")
    sent = await space.send(ENDORSE_KIND, {"revoke": options.id}, confirm=True)
    if not options.json:
        print(printable(f"revoked {options.id}"))
    return {"id": sent.id, "kind": ENDORSE_KIND, "revoke": options.id}


async def show_proposal(space: JoinedSpace, options: argparse.Namespace) -> Any:
    found = await ask_approver(space, options, "trust_origins", {"proposal": options.id})
    report = found["proposal"]
    if options.json:
        return report
    print(printable(f"asks: {report['why']}" if report["asks"] else "does not ask"))
    for each in report["arguments"]:
        print(printable(f"  {each['path']}: {each['value']}"))
        print(printable(f"      {each['text']}"))
        if "envelope" in each:
            print(printable(f"      in {each['envelope']}: {each['excerpt']}"))
    for each in report.get("private", ()):
        print(printable(f"  {each['text']}"))
    if report.get("outside"):
        print("  whoever proposed it also reads what this space does not see")
    return None
