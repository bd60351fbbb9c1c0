"""What a row of the inbox says, how rows are ordered and grouped, and what amounts come to."""

from __future__ import annotations

from typing import Any

import pytest

from moot.protocol.operation import Json
from tests.console.in_node import each_in_node, in_node

_PROPOSALS = """
const { Proposals } = await bring("core/state/state-proposals.js");
const proposals = new Proposals();
given.calls.forEach(([from, name, args], index) => {
    const id = `p${index}`;
    const payload = JSON.stringify({ method: "tools/call", params: { name, arguments: args } });
    const raw = `{"id":"${id}","from":"${from}","to":["files"],"payload":${payload}}`;
    const envelope = { ...JSON.parse(raw), kind: "mcp/proposal" };
    proposals.receive(envelope, { id, from, to: ["files"], about: [], at: index, raw });
});
const pending = proposals.open();
"""


def of_pending(calls: Json, expression: str, **given: Json) -> Any:
    return in_node(f"async (bring, given) => {{ {_PROPOSALS} {expression} }}", {"calls": calls, **given})


def sentences(*calls: tuple[str, dict[str, Json]]) -> list[str]:
    found: list[str] = of_pending(
        [["agent", name, arguments] for name, arguments in calls],
        'const m = await bring("views/proposals/proposal-sentence.js"); return pending.map(m.wishText);',
    )
    return found


def test_a_sentence_says_what_the_call_says_and_no_more() -> None:
    mail: dict[str, Json] = {"to": "a@b.example", "subject": "Hi", "body": "Text"}
    assert sentences(
        ("write_file", {"path": "notes.md", "content": "a"}),
        ("edit_file", {"path": "notes.md", "old": "a", "new": "b"}),
        ("append_file", {"path": "notes.md", "content": "a"}),
        ("run_command", {"command": "ls -l"}),
        ("delete_file", {"path": "notes.md"}),
        ("read_file", {"path": "notes.md"}),
        ("send_email", mail),
        ("draft_email", mail),
        ("transfer", {"amount": 1}),
        # As coding agents ask.
        ("Bash", {"input": {"command": "git push"}, "folder": "/home/ana"}),
        ("Edit", {"input": {"file_path": "a.py", "old_string": "a", "new_string": "b"}, "folder": "/"}),
        ("ask", {"input": "a word"}),
        # Neither writes a file, nor runs a command, nor sends a letter.
        ("search_file", {"path": "notes.md", "text": "a"}),
        ("rename", {"old": "a", "new": "b"}),
        ("describe", {"command": "ls"}),
        ("check_address", mail),
    ) == [
        "wants to write notes.md",
        "wants to edit notes.md",
        "wants to append to notes.md",
        "wants to run ls -l",
        "wants to delete notes.md",
        "wants to read notes.md",
        "wants to send e-mail to a@b.example",
        "wants to draft e-mail to a@b.example",
        "wants to call transfer",
        "wants to run git push",
        "wants to edit a.py",
        "wants to call ask",
        "wants to call search_file",
        "wants to call rename",
        "wants to call describe",
        "wants to call check_address",
    ]


def test_the_size_of_a_row_is_the_change_the_amount_or_the_bytes() -> None:
    calls: Json = [
        ["agent", "write_file", {"path": "known", "content": "a\nB\nc\nd\n"}],
        ["agent", "write_file", {"path": "unknown", "content": "a\nb\n"}],
        ["agent", "edit_file", {"path": "known", "old": "a", "new": "b\nc"}],
        ["agent", "transfer", {"amount": 120, "currency": "EUR"}],
        ["agent", "add", {"a": 1}],
    ]
    assert of_pending(
        calls,
        """const m = await bring("views/proposals/proposal-sentence.js");
        const known = (host, path) => (path === "known" ? "a\\nb\\nc\\n" : undefined);
        return pending.map((each) => m.sizeOf(each, known));""",
    ) == ["+2 −1", "2 lines", "+2 −1", "amount: 120 EUR", "67 B"]


WRITE: Json = ["write_file", {"path": "notes.md", "content": "a\nb\n"}, "written"]
READ: Json = ["read_text_file", {"path": "notes.md"}, "a\nb\n"]
REPLACED = "wants to replace notes.md, +1 −1"
UNKNOWN = "wants to write notes.md, 2 lines"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([], UNKNOWN),
        ([WRITE], REPLACED),
        ([READ], REPLACED),
        ([WRITE, ["get_file_info", {"path": "notes.md"}, "4 bytes"]], REPLACED),
        ([WRITE, ["write_file", {"path": "notes.md", "content": "x"}, None]], UNKNOWN),
        # What tools say of a file is not what is in it.
        ([["get_file_info", {"path": "notes.md"}, "4 bytes"]], UNKNOWN),
        ([["append_file", {"path": "notes.md", "content": "a\nb\n"}, "appended"]], UNKNOWN),
        ([["search_file", {"path": "notes.md", "text": "a\nb\n"}, "found"]], UNKNOWN),
        # Whatever was in it may be something else by now.
        ([WRITE, ["delete_file", {"path": "notes.md"}, "deleted notes.md"]], UNKNOWN),
        ([READ, ["edit_file", {"path": "notes.md", "old": "a", "new": "c"}, "done"]], UNKNOWN),
    ],
    ids=str,
)
def test_nothing_is_said_to_be_replaced_unless_its_content_is_known(before: Json, said: str) -> None:
    """First with what was done before, then without: a row keeps no number that is not true any more."""
    found = of_pending(
        [["agent", "write_file", {"path": "notes.md", "content": "a\nc\n"}]],
        """const m = await bring("views/proposals/proposal-sentence.js");
        const { knownTexts, lastKnownText } = await bring("views/parts/text-diff.js");
        const row = () => {
            const size = m.sizeOf(pending[0], knownTexts(proposals));
            return `${m.wishText(pending[0])}, ${size}`;
        };
        given.before.forEach(([name, args, text], index) => {
            const params = { name, arguments: args };
            const result = { content: [{ type: "text", text }] };
            const answer = text === null ? null : { id: "a", from: "files", at: index, result };
            const call = { method: "tools/call", name, params };
            proposals.requests.set(`r${index}`, { id: `r${index}`, to: ["files"], call, at: index, answer });
        });
        const known = lastKnownText(proposals, "files", "notes.md", Infinity)?.text ?? null;
        const first = row();
        proposals.requests.clear();
        return [first, known, row()];""",
        before=before,
    )
    assert found == [said, "a\nb\n" if said == REPLACED else None, UNKNOWN]


RED: dict[str, Json] = {"command": "rm -rf /"}
CALLS: Json = [
    ["coder", "write_file", {"path": "a", "content": "x"}],
    ["ops", "run_command", {"command": "ls"}],
    ["ops", "run_command", RED],
    ["coder", "write_file", {"path": "b", "content": "x"}],
    ["coder", "write_file", {"path": "b", "content": "x", "mode": 1}],
]


@pytest.mark.parametrize(
    ("choice", "groups"),
    [
        ({}, [["p0", "p1", "p2", "p3", "p4"]]),
        ({"sort": "newest"}, [["p4", "p3", "p2", "p1", "p0"]]),
        ({"sort": "risk"}, [["p2", "p0", "p1", "p3", "p4"]]),
        ({"risk": "bad"}, [["p2"]]),
        ({"search": "CODER b"}, [["p3", "p4"]]),
        ({"search": "nothing such"}, [[]]),
        ({"group": "agent", "sort": "risk"}, [["p2", "p1"], ["p0", "p3", "p4"]]),
        ({"group": "tool"}, [["p0", "p3", "p4"], ["p1", "p2"]]),
        ({"group": "alike"}, [["p0", "p3"], ["p1", "p2"], ["p4"]]),
    ],
    ids=str,
)
def test_the_inbox_is_searched_ordered_and_grouped(choice: Json, groups: Json) -> None:
    assert (
        of_pending(
            CALLS,
            """const m = await bring("views/approvals/inbox-order.js");
            const { groups } = m.arrangeInbox(pending, { ...m.PLAIN_CHOICE, ...given.choice });
            return groups.map((each) => each.proposals.map(({ id }) => id));""",
            choice=choice,
        )
        == groups
    )


def test_sums_are_exact_to_the_last_digit() -> None:
    module = "views/proposals/differences-table.js"
    cases = [["0.1", "0.2"], ["12345678901234567890", "1"], ["-1.50", "1"], ["2", "-2.25"], ["7"]]
    assert each_in_node(module, "m.sumOf", cases) == ["0.3", "12345678901234567891", "-0.50", "-0.25", "7"]


@pytest.mark.parametrize(
    ("tokens", "text", "marked"),
    [
        (
            "shellTokens",
            "A=1 rm -rf \"$HOME/x y\" 'z' | tee out # gone",
            ["rm:program", "-rf:option", '"$HOME/x y":string', "'z':string", "|:sign", "tee:program"],
        ),
        ("shellTokens", "echo it's \"open", ["echo:program", "'s \"open:string"]),
        (
            "sqlTokens",
            "DELETE FROM users WHERE name = 'it''s' -- all",
            ["DELETE:keyword", "FROM:keyword", "WHERE:keyword", "=:sign", "'it''s':string", "-- all:comment"],
        ),
    ],
)
def test_parts_of_commands_and_statements_are_marked_and_nothing_is_lost(
    tokens: str, text: str, marked: list[str]
) -> None:
    (found,) = each_in_node("views/parts/code-view.js", f"m.{tokens}", [text])
    assert "".join(each["text"] for each in found) == text
    said = [f"{each['text']}:{each['kind']}" for each in found if each["kind"] not in {"word", "space"}]
    assert said[: len(marked)] == marked


def test_letters_that_look_like_others_are_found_in_mixed_words_and_in_addresses() -> None:
    cases = ["maria@аcme.example", "мария@почта.рф", "pаypal", "привет", "5 μm", "https://еxample.org"]
    found = each_in_node("views/proposals/call-risks.js", "m.oddLetters", cases)
    assert [len(each) for each in found] == [1, 12, 1, 0, 0, 1]
    assert found[0] == [{"at": 6, "letter": "а", "alphabet": "Cyrillic"}]
