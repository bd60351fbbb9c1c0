"""Servers that others wrote, joined to one space: every tool listed, and called by another member.

npm's everything, filesystem and memory are of the handshake era, PyPI's time and git of the stateless one.
The Node servers come from `tools/node` by `make test`; they are pinned, so a new tool is news.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from moot.mcp.stdio_child import Command
from moot.mcp.upstream import StdioServer, UpstreamOptions
from moot.participant import JoinedSpace
from tests.bridges.bridged_space import HOST, BridgedSpace, bridged_space, call
from tests.mcp.upstreams import NODE, PATIENT, text_of
from tests.waiting import HANG_SECONDS

ERAS = {
    "everything": "handshake",
    "filesystem": "handshake",
    "memory": "handshake",
    # These have both; a process is asked for the handshake first.
    "time": "handshake",
    "git": "handshake",
}

# Tool → arguments, and a text that its answer holds.
Calls = dict[str, tuple[dict[str, Any], str]]

EVERYTHING: Calls = {
    "echo": ({"message": "hi"}, "Echo: hi"),
    "get-annotated-message": ({"messageType": "success"}, "Operation completed"),
    "get-env": ({}, "PATH"),
    "get-resource-links": ({"count": 2}, "resource links"),
    "get-resource-reference": ({"resourceType": "Text", "resourceId": 1}, "resource reference"),
    "get-roots-list": ({}, "oots"),
    "get-structured-content": ({"location": "New York"}, "temperature"),
    "get-sum": ({"a": 2, "b": 3}, "5"),
    "get-tiny-image": ({}, "image"),
    "gzip-file-as-resource": ({"name": "x.gz", "data": "data:text/plain,hi"}, "application/gzip"),
    "toggle-simulated-logging": ({}, "logging"),
    "toggle-subscriber-updates": ({}, "updates"),
    "trigger-elicitation-request": ({}, "inputs"),
    "trigger-long-running-operation": ({"duration": 0.1, "steps": 2}, "completed"),
    "trigger-sampling-request": ({"prompt": "x"}, "sampled"),
    "trigger-url-elicitation": ({"url": "https://example.org/"}, "completed the URL elicitation"),
}
MEMORY: Calls = {
    "create_entities": (
        {"entities": [{"name": "moot", "entityType": "assembly", "observations": ["old"]}]},
        "moot",
    ),
    "create_relations": ({"relations": [{"from": "moot", "to": "moot", "relationType": "is"}]}, "is"),
    "add_observations": ({"observations": [{"entityName": "moot", "contents": ["new"]}]}, "new"),
    "read_graph": ({}, "moot"),
    "search_nodes": ({"query": "moot"}, "moot"),
    "open_nodes": ({"names": ["moot"]}, "moot"),
    "delete_observations": ({"deletions": [{"entityName": "moot", "observations": ["new"]}]}, "success"),
    "delete_relations": ({"relations": [{"from": "moot", "to": "moot", "relationType": "is"}]}, "success"),
    "delete_entities": ({"entityNames": ["moot"]}, "success"),
}
TIME: Calls = {
    "get_current_time": ({"timezone": "UTC"}, "UTC"),
    "convert_time": (
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00",
    ),
}


def filesystem(folder: Path) -> Calls:
    file = str(folder / "a.txt")
    return {
        "list_allowed_directories": ({}, str(folder)),
        "write_file": ({"path": file, "content": "one\ntwo\n"}, "Successfully wrote"),
        "read_file": ({"path": file}, "one"),
        "read_text_file": ({"path": file, "head": 1}, "one"),
        "read_media_file": ({"path": file}, "blob"),
        "read_multiple_files": ({"paths": [file]}, "two"),
        "edit_file": ({"path": file, "edits": [{"oldText": "one", "newText": "1"}]}, "+1"),
        "create_directory": ({"path": str(folder / "d")}, "Successfully created"),
        "list_directory": ({"path": str(folder)}, "[FILE] a.txt"),
        "list_directory_with_sizes": ({"path": str(folder)}, "a.txt"),
        "directory_tree": ({"path": str(folder)}, "a.txt"),
        "move_file": ({"source": file, "destination": str(folder / "d" / "b.txt")}, "Successfully moved"),
        "search_files": ({"path": str(folder), "pattern": "**/*.txt"}, "b.txt"),
        "get_file_info": ({"path": str(folder / "d")}, "isDirectory: true"),
    }


def git(folder: Path) -> Calls:
    at = {"repo_path": str(folder)}
    return {
        "git_status": (at, "b.txt"),
        "git_add": (at | {"files": ["b.txt"]}, "staged"),
        "git_diff_staged": (at, "b.txt"),
        "git_commit": (at | {"message": "second"}, "committed"),
        "git_log": (at | {"max_count": 2}, "second"),
        "git_show": (at | {"revision": "HEAD"}, "second"),
        "git_diff_unstaged": (at, "nstaged"),
        "git_diff": (at | {"target": "HEAD~1"}, "b.txt"),
        "git_create_branch": (at | {"branch_name": "side"}, "side"),
        "git_branch": (at | {"branch_type": "local"}, "side"),
        "git_checkout": (at | {"branch_name": "side"}, "side"),
        "git_reset": (at, "reset"),
    }


def answer_to(method: str) -> dict[str, Any]:
    """What a person says who is asked."""
    if method == "elicitation/create":
        return {"action": "accept", "content": {"name": "alice", "interpretation": "general"}}
    if method == "sampling/createMessage":
        content = {"type": "text", "text": "sampled"}
        return {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}
    return {"roots": [{"uri": "file:///srv", "name": "srv"}]}


async def call_through(space: JoinedSpace, host: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A call whose questions are answered, however many there are."""
    result = await call(space, tool, arguments, to=host, timeout=HANG_SECONDS)
    while result.get("resultType") == "input_required":
        answers = {key: answer_to(each["method"]) for key, each in result["inputRequests"].items()}
        also = {"inputResponses": answers, "requestState": result["requestState"]}
        result = await call(space, tool, arguments, to=host, also=also, timeout=HANG_SECONDS)
    return result


async def join_all(space: BridgedSpace, folder: Path) -> None:
    argv = {
        "everything": ("mcp-server-everything",),
        "filesystem": ("mcp-server-filesystem", str(folder)),
        "memory": ("mcp-server-memory",),
        "time": ("mcp-server-time",),
        "git": ("mcp-server-git",),
    }
    path = os.pathsep.join((str(NODE), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {"PATH": path, "MEMORY_FILE_PATH": str(folder / "memory.json")}
    assert (NODE / "mcp-server-everything").exists(), "make test installs the Node servers"
    for name, command in argv.items():
        server = StdioServer(command=Command(argv=command, env=env), inherited=os.environ)
        bridge = await space.bridge(server, name, upstream=UpstreamOptions(limits=PATIENT), must_start=True)
        assert bridge.upstream.server_info is not None
        assert bridge.upstream.server_info.era == ERAS[name]


async def test_five_servers_in_one_space(tmp_path: Path) -> None:
    folder, repository = tmp_path / "files", tmp_path / "repository"
    folder.mkdir()
    repository.mkdir()
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("config", "user.email", "a@example.org"),
        ("config", "user.name", "A"),
        ("commit", "-q", "--allow-empty", "-m", "first"),
    ):
        subprocess.run(["git", *arguments], cwd=repository, check=True)  # noqa: S603, S607
    (repository / "b.txt").write_text("b")
    async with bridged_space(tmp_path, dict.fromkeys(ERAS, HOST)) as space:
        await join_all(space, folder)
        alice = await space.join("alice")
        seen = await alice.request_all("tools/list", timeout_seconds=HANG_SECONDS)
        assert sorted(seen) == sorted(ERAS)
        expected: dict[str, Calls] = {
            "everything": EVERYTHING,
            "filesystem": filesystem(folder),
            "memory": MEMORY,
            "time": TIME,
            "git": git(repository),
        }

        async def use(host: str, calls: Calls) -> int:
            names = [tool["name"] for tool in await alice.list_all(host, "tools")]
            tasks = ["simulate-research-query"] if host == "everything" else []
            assert sorted(names) == sorted([*calls, *tasks]), host
            for tool, (arguments, says) in calls.items():
                result = await call_through(alice, host, tool, arguments)
                shown = " ".join(str(block) for block in result["content"])
                assert not result.get("isError"), (host, tool, shown)
                assert says in shown, (host, tool, shown)
            return len(calls)

        # All at once: nobody waits for anybody.
        counts = await asyncio.gather(*(use(host, calls) for host, calls in expected.items()))
        assert sum(counts) == 53
        await _a_task(alice)
        await _resources_and_prompts(alice)


async def _a_task(alice: JoinedSpace) -> None:
    """A tool that only runs as a task of 2025-11-25: methods that no one here knows pass as they are."""
    tool, arguments = "simulate-research-query", {"topic": "moots"}
    made = await call(alice, tool, arguments, to="everything", also={"task": {"ttl": 60_000}})
    named = {"taskId": made["task"]["taskId"]}
    found = await alice.request("everything", "tasks/get", named)
    assert found["taskId"] == named["taskId"]
    report = await alice.request("everything", "tasks/result", named, timeout_seconds=HANG_SECONDS)
    assert "moots" in text_of(report)


async def _resources_and_prompts(alice: JoinedSpace) -> None:
    resources = await alice.list_all("everything", "resources")
    read = await alice.request("everything", "resources/read", {"uri": resources[0]["uri"]})
    assert read["contents"][0]["uri"] == resources[0]["uri"]
    templates = await alice.list_all("everything", "resourceTemplates")
    assert "demo://resource/dynamic/text/{resourceId}" in [each["uriTemplate"] for each in templates]
    dynamic = {"uri": "demo://resource/dynamic/text/7"}
    assert (await alice.request("everything", "resources/read", dynamic))["contents"]
    await alice.request("everything", "resources/subscribe", dynamic)
    await alice.request("everything", "resources/unsubscribe", dynamic)
    prompts = [each["name"] for each in await alice.list_all("everything", "prompts")]
    assert "completable-prompt" in prompts
    got = await alice.request("everything", "prompts/get", {"name": "simple-prompt"})
    assert got["messages"]
    wanted = {
        "ref": {"type": "ref/prompt", "name": "completable-prompt"},
        "argument": {"name": "department", "value": "E"},
    }
    completed = await alice.request("everything", "completion/complete", wanted)
    assert completed["completion"]["values"] == ["Engineering"]
    assert text_of(await call(alice, "echo", {"message": "end"}, to="everything")) == "Echo: end"
