"""Rules from the permissions of Claude Code, Codex and Cursor: never wider than what the client allows."""

from __future__ import annotations

import fnmatch
import json
import posixpath
import random
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from moot.cli import main
from moot.errors import UsageError
from moot.trust.imports.permission_files import (
    PermissionFile,
    is_cursor,
    read_codex_rules,
    read_permissions,
)
from moot.trust.imports.rule_maker import ImportedRules, ImportTargets, ToolTarget, make_rules
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_yaml import read_rules, write_rules
from tests.rows import for_each_row
from tests.trust.histories import call

TOOLS = {
    "shell": ToolTarget("box", "run", "command"),
    "read": ToolTarget("files", "read_file", "path"),
    "write": ToolTarget("files", "write_file", "path"),
    "fetch": ToolTarget("web", "fetch", "url"),
}


def imported(file: PermissionFile, root: str | None = "/srv/p", tools: Any = None) -> ImportedRules:
    found = make_rules(file, ImportTargets("agent", TOOLS if tools is None else tools, root))
    # As it is written to a file and read again.
    assert read_rules(write_rules(found.rules)) == found.rules
    return found


def claude(root: str | None = "/srv/p", tools: Any = None, **lists: list[str]) -> ImportedRules:
    return imported(read_permissions({"permissions": lists}, "claude-code"), root, tools)


def verdict(rules: ImportedRules, kind: str, value: str, **more: Any) -> str:
    target = TOOLS[kind]
    case = call({target.argument: value, **more}, tool=target.tool, to=(target.host,))
    return evaluate(rules.rules, case, case.at).decision


COMMANDS = claude(
    allow=[
        "Bash(npm run test:*)", "Bash(git log *)", "Bash(git status)", "Bash(ls:*)", "Bash(docker * ps)",
        "Bash(env:*)", 'Bash(echo "$HOME")',
    ],
    ask=["Bash(git log -p:*)"],
    deny=["Bash(curl:*)", "Bash(git push:*)", "Bash(ls /etc/shadow)", "Bash(* --force)"],
)  # fmt: skip


@for_each_row(
    ("command", "decision"),
    [
        ("npm run test", "approve"),
        ("npm run test unit --bail", "approve"),
        ("npm run tests", "ask"),
        ("npm run test; rm -rf ~", "ask"),
        ("npm run test && rm -rf x", "ask"),
        ("npm run test $(id)", "ask"),
        ("npm run test `id`", "ask"),
        ("npm run test\nrm -rf x", "ask"),
        ("npm run test > /etc/passwd", "ask"),
        ("npm run test 'a b'", "ask"),
        ("X=1 npm run test", "ask"),
        ("git log -n 5", "approve"),
        ("git log", "ask"),
        ("git log -p", "ask"),
        ("git log -p x", "ask"),
        ("git status", "approve"),
        ("git status --short", "ask"),
        ("docker compose ps", "approve"),
        ("docker x; rm ps", "ask"),
        ('echo "$HOME"', "ask"),
        ("curl https://example.com", "reject"),
        ("  CURL x", "reject"),
        ("git  push origin", "reject"),
        ("ls x && curl evil", "ask"),
        ("env curl x", "ask"),
        ("ls /etc/shadow", "reject"),
        ("ls x /etc/shadow", "approve"),
        ("ls --force", "reject"),
        ("ls --force x", "ask"),
        ("whoami", "ask"),
    ],
)
def test_commands_are_approved_as_plain_words_and_denied_wherever_they_stand(
    command: str, decision: str
) -> None:
    assert verdict(COMMANDS, "shell", command) == decision


def test_another_argument_beside_the_command_is_left_to_people() -> None:
    assert verdict(COMMANDS, "shell", "git status", cwd="/") == "ask"
    assert verdict(COMMANDS, "shell", "curl x", cwd="/") == "reject"


def _client_allows(command: str, lists: dict[str, list[str]]) -> bool:
    """What Claude Code would run without asking: every part of a chain is allowed, and none is denied."""

    def matches(part: str, entry: str) -> bool:
        inner = entry.removeprefix("Bash(").removesuffix(")")
        if inner.endswith((":*", " *")):
            start = inner[:-2]
            return part == start or part.startswith(start + " ")
        return fnmatch.fnmatchcase(part, inner.replace("[", "[[]"))

    if re.search(r"[\n`\\\"'<>(){}$~?*\[\]#!]", command):
        return False
    parts = [part.strip() for part in re.split(r"&&|\|\||[;|&]", command)]
    for part in parts:
        if any(matches(part, entry) for key in ("deny", "ask") for entry in lists.get(key, ())):
            return False
    return all(any(matches(part, entry) for entry in lists["allow"]) for part in parts)


def test_nothing_is_approved_that_the_client_would_not_run() -> None:
    lists = {
        "allow": [
            "Bash(git log:*)",
            "Bash(npm run *)",
            "Bash(make test)",
            "Bash(docker * ps)",
            "Bash(cat *.md)",
        ],
        "ask": ["Bash(npm run publish:*)"],
        "deny": ["Bash(curl:*)", "Bash(git log --all:*)", "Bash(* --force)"],
    }
    rules = claude(allow=lists["allow"], ask=lists["ask"], deny=lists["deny"])
    pieces = [
        "git", "log", "npm", "run", "make", "test", "docker", "ps", "cat", "a.md", ".md", "curl", "--all",
        "--force", "publish", "x=1", "-n", "../x", "/etc/passwd", ";", "&&", "|", "&", "$(id)", "`id`",
        "'", '"',
        "\n",
        "\t", "\\", "*", "~", "#", ">", "{a,b}", "é", "\u2028", "\x00", "",
    ]  # fmt: skip
    random_numbers = random.Random(20)
    approved = 0
    for _ in range(6_000):
        words = random_numbers.choices(pieces, k=random_numbers.randint(1, 5))
        if random_numbers.random() < 0.7:
            words = (
                random_numbers.choice(lists["allow"])[5:-1].replace(":", " ").replace("*", "x").split()
                + words[1:]
            )
        command = random_numbers.choice([" ", " ", " ", "  ", ""]).join(words)
        if verdict(rules, "shell", command) == "approve":
            approved += 1
            assert _client_allows(command, lists), command
    assert approved > 100


@pytest.mark.parametrize("root", ["/srv/p", "."])
def test_paths_are_approved_within_their_folder_only(root: str) -> None:
    rules = claude(
        root,
        allow=["Read(./src/**)", "Read(*.txt)", "Edit(/docs/*.md)", "Read(//var/log/**/*.log)", "Read(.*)"],
        deny=["Read(./src/secrets/**)", "Read(.env)"],
    )
    base = "" if root == "." else "/srv/p/"
    assert [note for note in rules.notes if "`..`" in note]
    for path, decision in (
        ("src/a.py", "approve"),
        ("src/deep/er/.hidden/a.py", "approve"),
        ("src/../../etc/passwd", "ask"),
        ("src/..", "ask"),
        ("src/./a.py", "ask"),
        ("src//a.py", "ask"),
        ("src/a%2e.py", "ask"),
        ("srcs/a.py", "ask"),
        ("src/secrets/key", "reject"),
        ("SRC/Secrets/key", "reject"),
        ("src/x/../secrets/key", "ask"),
        (".env", "reject"),
        ("src/.env", "reject"),
        ("notes.txt", "approve"),
        ("a/b/notes.txt", "approve"),
        ("../notes.txt", "ask"),
    ):
        assert verdict(rules, "read", base + path) == decision, path
    assert verdict(rules, "read", "/var/log/app/x.log") == "approve"
    assert verdict(rules, "read", "/var/log/x.log") == "approve"
    assert verdict(rules, "read", "/var/log/../x.log") == "ask"
    assert verdict(rules, "write", base + "docs/a.md") == "approve"
    assert verdict(rules, "write", base + "docs/sub/a.md") == "ask"
    assert verdict(rules, "read", base + "docs/a.md") == "ask"
    for segment in ("..", ".", "a", "src", ".x", "a.txt"):
        for other in ("..", ".", "a", "a.txt", ""):
            path = f"{base}src/{segment}/{other}"
            if verdict(rules, "read", path) == "approve":
                assert posixpath.normpath(path) == path
                assert path.startswith(f"{base}src/")


def test_a_path_with_signs_of_expressions_is_imported_as_it_is() -> None:
    rules = claude(allow=["Read(./a^b)", "Read(./a\nb)"])
    assert verdict(rules, "read", "/srv/p/a^b") == "approve"
    assert verdict(rules, "read", "/srv/p/a") == "ask"


def test_paths_of_a_project_are_left_to_people_while_nobody_says_where_it_is() -> None:
    rules = claude(None, allow=["Read(./src/**)", "Read(~/notes/**)", "Read"], deny=["Read(./.env)"])
    assert verdict(rules, "read", "other/a.py") == "approve"
    assert verdict(rules, "read", "a/.env") == "ask"
    assert verdict(rules, "read", ".env") == "reject"
    assert any("--root" in note for note in rules.notes)
    assert any("home folder" in note for note in rules.notes)


@for_each_row(
    ("url", "decision"),
    [
        ("https://example.com", "approve"),
        ("https://example.com/a?b=c", "approve"),
        ("https://docs.example.org/x", "approve"),
        ("https://example.org/x", "ask"),
        ("http://example.com/", "ask"),
        ("https://example.com.evil.net/", "ask"),
        ("https://example.com@evil.net/", "ask"),
        ("https://evil.net/#example.com", "ask"),
        ("https://example.com\\@evil.net/", "ask"),
        ("https://example.com:8443/", "ask"),
        ("https://EXAMPLE.com/", "ask"),
        ("https://bad.example/", "reject"),
        ("http://user@BAD.example:80/x", "reject"),
        ("https://bad.example./", "reject"),
        ("https://example.com/?next=bad.example", "ask"),
    ],
)
def test_addresses_are_approved_by_their_whole_host(url: str, decision: str) -> None:
    rules = claude(
        allow=["WebFetch(domain:example.com)", "WebFetch(domain:*.example.org)"],
        deny=["WebFetch(domain:bad.example)"],
    )
    assert verdict(rules, "fetch", url) == decision
    if decision == "approve":
        assert urlsplit(url).hostname in ("example.com", "docs.example.org")


def test_tools_of_mcp_servers_keep_their_names() -> None:
    rules = claude(
        allow=["mcp__github__get_issue", "mcp__notes", "mcp__jira__read_*", "mcp__*", "mcp__x__!y"],
        deny=["mcp__notes__delete_*", "mcp__github__merge"],
    ).rules

    def decide(host: str, tool: str) -> str:
        case = call({"anything": 1}, tool=tool, to=(host,))
        return evaluate(rules, case, case.at).decision

    assert decide("github", "get_issue") == "approve"
    assert decide("github", "get_issues") == "ask"
    assert decide("github", "merge") == "reject"
    assert decide("other", "get_issue") == "ask"
    assert decide("notes", "add") == "approve"
    assert decide("notes", "delete_all") == "reject"
    assert decide("jira", "read_ticket") == "approve"
    assert decide("x", "anything") == "ask"
    stranger = call({}, tool="get_issue", to=("github",), proposer="eve")
    assert evaluate(rules, stranger, stranger.at).decision == "ask"


def test_a_denial_that_cannot_be_said_keeps_all_of_its_kind_from_being_approved() -> None:
    rules = claude(
        allow=["Read(./src/**)", "Bash(ls:*)"], deny=["Read(./src/{a,b}/**)", "Bash(" + "x" * 2000 + ")"]
    )
    assert verdict(rules, "read", "/srv/p/src/c/x") == "ask"
    assert verdict(rules, "shell", "ls x") == "ask"
    assert sum("so all of its kind is left to people" in note for note in rules.notes) == 2


def test_without_a_tool_nothing_is_approved_and_a_denial_asks_by_the_name_of_the_argument() -> None:
    rules = claude(tools={}, allow=["Bash(ls:*)", "mcp__box"], deny=["Bash(curl:*)"])
    assert verdict(rules, "shell", "ls") == "approve"  # by mcp__box
    assert verdict(rules, "shell", "curl x") == "ask"
    assert any("--shell" in note for note in rules.notes)


CODEX = """
# Read-only git.
prefix_rule(
    pattern = ["git", ["status", "log"]],
    justification = "harmless",
    match = [["git", "status"], "git log -n 5"],
    not_match = ["git push"],
)
prefix_rule(pattern = ["git", "log", "--all"], decision = "prompt")
prefix_rule(pattern = ["rm"], decision = "forbidden")
prefix_rule(pattern = ["echo", "a b"])
host_executable(name = "git", paths = ["/usr/bin/git"])
"""


def test_prefix_rules_of_codex_are_read_and_never_run() -> None:
    rules = imported(read_codex_rules(CODEX))
    for command, decision in (
        ("git status", "approve"),
        ("git log -n 5", "approve"),
        ("git push", "ask"),
        ("git -C x status", "ask"),
        ("git log --all", "ask"),
        ("rm -rf x", "reject"),
        ("git log; rm x", "ask"),
        ("echo a b", "ask"),
        ("echo 'a b'", "ask"),
    ):
        assert verdict(rules, "shell", command) == decision, command
    assert any("host_executable" in note for note in rules.notes)
    for wrong in (
        "prefix_rule(pattern = [])",
        "prefix_rule(pattern = open('x'))",
        "prefix_rule(['git'])",
        "prefix_rule(pattern = ['git'], decision = 'maybe')",
        "prefix_rule(pattern = ['git'",
        "(" * 10_000,
        "x = __import__('os').system('false')",
        "[prefix_rule(pattern = [w], decision = 'forbidden') for w in ['rm', 'dd']]",
    ):
        with pytest.raises(UsageError):
            read_codex_rules(wrong)


def test_a_file_of_cursor_is_known_by_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"permissions": {"allow": ["Shell(git)", "Read(src/**)"], "deny": ["Shell(rm)"]}}')
    assert main(["rules", "import", str(file), "--proposer", "agent", "--shell", "box/run/command"]) == 0
    assert "git" in capsys.readouterr().out
    assert not is_cursor({"permissions": {"allow": ["Bash(git:*)", "Read(src/**)"]}})


def test_lists_and_the_command_line_of_cursor() -> None:
    lists = read_permissions(
        {"terminalAllowlist": ["git", "npm:run test*"], "mcpAllowlist": ["github:get_issue", "*:*"]}, "cursor"
    )
    rules = imported(lists)
    assert verdict(rules, "shell", "git status") == "approve"
    assert verdict(rules, "shell", "gitx") == "ask"
    assert verdict(rules, "shell", "npm run test:unit") == "approve"
    assert verdict(rules, "shell", "npm install") == "ask"
    assert sum(rule.decision == "approve" for rule in rules.rules) == 3
    command_line = imported(
        read_permissions(
            {
                "permissions": {
                    "allow": [
                        "Shell(ls)",
                        "Read(src/**/*.ts)",
                        "Write(docs/**)",
                        "Mcp(notes:*)",
                        "WebFetch(a.example)",
                    ],
                    "deny": ["Shell(rm)", "Read(.env*)", "Mcp(notes, wipe)"],
                }
            },
            "cursor",
        ),
        root=".",
    )
    for kind, value, decision in (
        ("shell", "ls -l", "approve"),
        ("shell", "rm x", "reject"),
        ("read", "src/a.ts", "approve"),
        ("read", "src/a/b.ts", "approve"),
        ("read", "src/a.js", "ask"),
        ("read", ".env.local", "reject"),
        ("write", "docs/x", "approve"),
        ("fetch", "https://a.example/x", "approve"),
    ):
        assert verdict(command_line, kind, value) == decision, value
    wipe = call({}, tool="wipe", to=("notes",))
    assert evaluate(command_line.rules, wipe, wipe.at).decision == "reject"


def test_the_command_prints_a_rules_file_and_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.json").write_text(
        json.dumps({"permissions": {"allow": ["Bash(ls:*)", "WebSearch"], "deny": ["Bash(rm:*)"]}})
    )
    assert (
        main(["rules", "import", "settings.json", "--proposer", "agent", "--shell", "box/run/command"]) == 0
    )
    answer = capfd.readouterr()
    rules = read_rules(answer.out)
    assert [rule.decision for rule in rules] == ["reject", "ask", "approve"]
    assert "note: WebSearch: not imported" in answer.err
    assert "3 rules: 1 approve, 1 reject, 1 ask" in answer.err
    Path("permissions.json").write_text('{"terminalAllowlist": ["git"], /* why */ }')
    assert main(["rules", "import", "permissions.json", "--proposer", "agent", "-o", "new.yaml"]) == 0
    assert read_rules(Path("new.yaml").read_text())[0].decision == "ask"
    Path("a.rules").write_text("prefix_rule(pattern = 1)")
    for arguments in (
        ["a.rules"],
        ["settings.json", "--from", "codex"],
        ["settings.json", "--shell", "box"],
        ["missing.json"],
        ["new.yaml"],
    ):
        assert main(["rules", "import", *arguments, "--proposer", "agent"]) == 2, arguments
