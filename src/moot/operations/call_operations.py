"""Using what others offer: tools, or any MCP method, requested where rights allow it and else proposed."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moot.errors import McpError, MootError, UsageError
from moot.operations.message_operations import stop_reasoning
from moot.operations.operation import (
    ClientContext,
    OperationResult,
    UserOperation,
    add_reason,
    add_wait_for_others,
    list_result,
    read_json,
    read_tool_arguments,
    short_id,
)
from moot.operations.text.input_text import questions_in
from moot.operations.text.text_table import TextTable
from moot.protocol.operation import Json

# Tools are listed in milliseconds; who is slower is called without it.
_CHECK_SECONDS: Final = 2.0
# A letter or two, not another word: `read_file` is not what `write_file` meant.
_ALIKE: Final = 0.85


async def list_tools(context: ClientContext, member: str) -> dict[str, Mapping[str, Any]] | None:
    """The tools of a member by name; None if it is not here, does not answer, or we may not ask."""
    space = context.space
    if member == space.name or not space.may_request(member, "tools/list"):
        return None
    if member not in {*space.roster, *(each.name for each in space.roster.values())}:
        return None
    within = (
        _CHECK_SECONDS if context.timeout_seconds is None else min(context.timeout_seconds, _CHECK_SECONDS)
    )
    try:
        listed = await space.list_all(member, "tools", timeout_seconds=within)
    except MootError:
        return None
    return {str(each.get("name")): each for each in listed}


def check_tool(member: str, tool: str, tools: Iterable[str] | None) -> None:
    """Raises UsageError if it is nearly the name of a tool. Others are passed on: not all are listed."""
    names = sorted(tools or ())
    close = [] if tool in names else difflib.get_close_matches(tool, names, n=1, cutoff=_ALIKE)
    if close:
        raise UsageError(f"{member} offers no tool {tool}. Did you mean {close[0]}?")


def typed_arguments(words: Sequence[str], tool: Mapping[str, Any] | None) -> dict[str, Json]:
    """The arguments of a call, those written `name=text` by the types in the tool's schema.

    Raises UsageError. What the schema does not say, or what may be a text, is a text.
    """
    arguments = read_tool_arguments(words)
    schema = (tool or {}).get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return arguments
    for name in [word.partition("=")[0] for word in words]:
        value, types = arguments.get(name), _types_of(properties.get(name))
        if not isinstance(value, str) or not types or "string" in types:
            continue
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            wanted = " or ".join(sorted(types))
            raise UsageError(f"the argument {name} is of type {wanted}, not {value!r}") from None
    return arguments


def _types_of(schema: Json) -> set[str]:
    """The JSON types that a schema names; empty if it leaves any open."""
    if not isinstance(schema, dict):
        return set()
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        each = [_types_of(choice) for choice in choices]
        return set().union(*each) if all(each) else set()
    named = schema.get("type")
    return {str(one) for one in (named if isinstance(named, list) else [named]) if one is not None}


# Members on the same machine answer in milliseconds; one far away or just starting needs a moment.
_LIST_SECONDS = 1.0
# A server that is still starting: installing one with npx or uvx takes this long.
_STARTING_SECONDS = 10.0


def _tools_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", nargs="?", metavar="MEMBER", help="only the tools of this member")


async def _tools(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    space = context.space
    if args.member is not None:
        context.check_member(args.member)
        found = {
            args.member: await space.list_all(args.member, "tools", timeout_seconds=context.timeout_seconds)
        }
        silent: list[str] = []
    else:
        found, silent = await _list_all(context)
    offered = [(member, tool) for member, tools in found.items() for tool in tools]
    value: Json = [{"member": member} | _snake_case(tool) for member, tool in offered]
    rows = [_tool_row(member, tool) for member, tool in offered]
    table = TextTable(("MEMBER", "TOOL", "ARGUMENTS", "DESCRIPTION"), rows)
    return list_result(value, table, _describe_none(silent))


async def _list_all(context: ClientContext) -> tuple[dict[str, list[dict[str, Json]]], list[str]]:
    """The tools of each member that answers, and the members that do not.

    A server that is still starting answers nobody in particular. So if there is no tool at all, each member
    that was silent is asked by itself, and gets longer.
    """
    space = context.space
    within = _LIST_SECONDS if context.timeout_seconds is None else context.timeout_seconds
    answers = await space.request_all("tools/list", timeout_seconds=within)
    found = {
        member: [tool for tool in result.get("tools", []) if isinstance(tool, dict)]
        for member, result in sorted(answers.items())
        if not isinstance(result, McpError)
    }
    silent = sorted(id for id in space.roster if id not in answers)
    if silent and not any(found.values()):
        longer = _STARTING_SECONDS if context.timeout_seconds is None else context.timeout_seconds
        lists = await asyncio.gather(
            *(space.list_all(id, "tools", timeout_seconds=longer) for id in silent), return_exceptions=True
        )
        for id, tools in zip(silent, lists, strict=True):
            if not isinstance(tools, BaseException):
                found[id] = tools
            elif isinstance(tools, McpError):
                found[id] = []
            elif not isinstance(tools, MootError):
                raise tools
        silent = [id for id in silent if id not in found]
    return dict(sorted(found.items())), silent


def _describe_none(silent: list[str]) -> str:
    if not silent:
        return "no member offers a tool"
    names = ", ".join(silent)
    return f"no tools are known yet: {names} did not answer. Try again, or wait longer with --timeout"


def _snake_case(tool: dict[str, Json]) -> dict[str, Json]:
    """The fields of a tool as our own fields are spelled; what is in them stays as it is."""
    return {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower(): value for name, value in tool.items()}


def _tool_row(member: str, tool: dict[str, Json]) -> tuple[str, str, str, str]:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    description = str(tool.get("description") or tool.get("title") or "").strip().partition("\n")[0]
    return member, str(tool.get("name")), names, description


def _call_arguments(parser: argparse.ArgumentParser) -> None:
    _tool_call_arguments(parser)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--direct", action="store_true", help="call it or fail; never propose")
    way.add_argument("--propose", action="store_true", help="propose it even if you could call it")
    add_wait_for_others(parser)
    parser.add_argument(
        "--no-wait", action="store_true", help="with --propose: print the proposal's id and do not wait"
    )


def _tool_call_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", metavar="MEMBER", help="who offers the tool")
    parser.add_argument("tool", metavar="TOOL", help="its name")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="name=value (typed as the tool says), name:=JSON, or one JSON object",
    )


async def _call(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    # A proposal can wait for its host; a request cannot.
    context.check_member(args.member, may_join_later=args.propose)
    tools = await list_tools(context, args.member)
    check_tool(args.member, args.tool, tools)
    arguments = typed_arguments(args.arguments, None if tools is None else tools.get(args.tool))
    params: dict[str, Json] = {"name": args.tool, "arguments": arguments}
    if args.no_wait:
        return await _propose_without_waiting(context, args, params)
    # Whoever lists its tools leaves out those that are withheld, so it is asked all the same.
    unknown = "" if not tools or args.tool in tools else f"{args.member} offers: {', '.join(sorted(tools))}"
    try:
        outcome = await context.space.perform(
            args.member,
            "tools/call",
            params,
            timeout_seconds=context.timeout_seconds,
            wait_for_others=args.wait_for_others,
            propose="never" if args.direct else "always" if args.propose else "auto",
            on_proposed=context.on_proposed,
        )
    except McpError as fault:
        if not unknown:
            raise
        raise McpError(fault.code, f"{fault.message}. {unknown}", fault.data) from None
    value: Json = {
        "member": outcome.host,
        "how": outcome.how,
        "decided_by": outcome.by,
        "proposal_id": outcome.proposal_id,
        "result": outcome.result,
    }
    lines = result_lines(outcome.result)
    if outcome.how == "fulfilled":
        lines = [f"{outcome.by} approved it", *lines]
    if outcome.is_error and unknown:
        lines.append(unknown)
    return OperationResult(value, lines, 1 if outcome.is_error else 0)


def result_lines(result: dict[str, Json]) -> list[str]:
    """A tool's answer for people: its texts, a line for anything else, or the whole of it."""
    content = result.get("content")
    lines: list[str] = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            lines += block["text"].split("\n")
        elif isinstance(block, dict):
            lines.append(f"[{block.get('type')}]")
    if result.get("resultType") == "input_required":
        lines += ["it needs more input; see --json", *questions_in(result)]
    if not lines and result and not isinstance(content, list):
        lines.append(json.dumps(result, ensure_ascii=False))
    return lines


def _propose_arguments(parser: argparse.ArgumentParser) -> None:
    _tool_call_arguments(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a decision; print the id")
    add_wait_for_others(parser)


async def _propose(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    args.direct, args.propose = False, True
    return await _call(context, args)


async def _propose_without_waiting(
    context: ClientContext, args: argparse.Namespace, params: dict[str, Json]
) -> OperationResult:
    if not args.propose:
        raise UsageError("--no-wait needs --propose: a direct call waits for its result")
    # Not `propose`: that follows the proposal, and withdraws it when we leave.
    payload: dict[str, Json] = {"method": "tools/call", "params": params}
    sent = await context.space.send("mcp/proposal", payload, to=args.member, confirm=True)
    return OperationResult({"id": sent.id, "proposal_id": sent.id}, [f"proposed: {sent.id}"])


def _request_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("member", metavar="MEMBER", help="who answers it")
    parser.add_argument("method", metavar="METHOD", help="such as resources/list or prompts/get")
    parser.add_argument("params", nargs="?", metavar="PARAMS", help="its params as a JSON object")
    parser.add_argument("--direct", action="store_true", help="call it or fail; never propose")


async def _request(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    params: Json = None if args.params is None else read_json(args.params, "PARAMS")
    if params is not None and not isinstance(params, dict):
        raise UsageError("PARAMS must be one JSON object")
    context.check_member(args.member)
    outcome = await context.space.perform(
        args.member,
        args.method,
        params,
        timeout_seconds=context.timeout_seconds,
        propose="never" if args.direct else "auto",
        on_proposed=context.on_proposed,
    )
    return OperationResult(outcome.result, [json.dumps(outcome.result, indent=2, ensure_ascii=False)])


def _reasoning_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("cancel",), help="cancel: ask the member to stop")
    parser.add_argument("sequence", nargs="?", metavar="ID", help="which one; required if several are active")
    add_reason(parser, "superseded")


async def _reasoning(context: ClientContext, args: argparse.Namespace) -> OperationResult:
    if args.action == "cancel":
        return await stop_reasoning(context, args.sequence, args.reason)
    found = context.space.contexts.active()
    value: Json = [
        {"id": each.id, "member": each.owner, "message": each.message, "thoughts": each.thoughts()}
        for each in found
    ]
    lines = [f"{short_id(each.id)}  {each.owner}: {each.message}" for each in found]
    return OperationResult(value, lines or ["nobody is sharing reasoning"])


OPERATIONS = (
    UserOperation(
        name="tools",
        help="list the tools that members offer",
        description="Lists the tools of all members, or of one member, with their arguments.",
        examples="  moot tools\n  moot tools files --json\n",
        arguments=_tools_arguments,
        run=_tools,
        waits=True,
    ),
    UserOperation(
        name="call",
        help="call a tool, or propose the call if you lack the permission",
        description="Calls a tool and prints the result. If you may not call it, the call is proposed, and "
        "the command says on stderr who can decide and how, and waits until somebody does; Ctrl-C withdraws "
        "the proposal.",
        examples="""\
  moot call files read_file path=notes.md
  moot call calculator add a=1 b=2
  moot call files write_file '{"path": "a.md", "text": "hello"}' --timeout 60
  moot call files write_file path=a.md text=hello --propose --no-wait
""",
        arguments=_call_arguments,
        run=_call,
        waits=True,
    ),
    UserOperation(
        name="propose",
        help="propose a tool call and wait for the decision",
        examples="  /propose files write_file path=a.md text=hello --no-wait\n",
        arguments=_propose_arguments,
        run=_propose,
        interactive_only=True,
    ),
    UserOperation(
        name="request",
        help="send any other MCP request: resources, prompts, completion",
        examples='  moot member request docs resources/read \'{"uri": "file:///a.md"}\'\n',
        arguments=_request_arguments,
        run=_request,
        waits=True,
    ),
    UserOperation(
        name="reasoning",
        help="list active reasoning; with cancel, ask a member to stop",
        arguments=_reasoning_arguments,
        run=_reasoning,
        interactive_only=True,
    ),
)
