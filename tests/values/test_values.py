"""Values have a meaning: what was approved widens along its structure, never by the letters it is made of."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moot.protocol.operation import Json
from moot.trust.learning.learner import suggest
from moot.trust.rules.rule import Rule
from moot.trust.rules.rule_evaluation import evaluate
from moot.trust.rules.rule_json import rule_as_json, rule_of_json
from moot.trust.rules.rule_yaml import read_rules, write_rules
from moot.values.inclusion import is_within
from moot.values.kinds import KINDS, ValuePattern, read_value, recognise
from moot.values.shell import split_command
from moot.values.templates import escape, read_template
from tests.examples import examples
from tests.rows import for_each_row
from tests.trust.histories import START, call, history
from tests.waiting import HANG_SECONDS

NOW = START + 86_400.0
FEW = "ada bob cyd dan eve fay gus hal ivy jon kim lea max ned oda pam".split()  # noqa: SIM905
# As many as names need to have a slot.
NAMES = [f"{name}{tail}" for name in FEW for tail in ("", "lin", "bet", "mar")]


def learned(name: str, texts: list[str], *, tool: str = "act") -> list[Rule]:
    return [each.rule for each in suggest(history([{name: text} for text in texts], tool=tool), now=NOW)]


def approved(rules: list[Rule], name: str, texts: list[str], *, tool: str = "act") -> list[str]:
    return [
        text for text in texts if evaluate(rules, call({name: text}, tool=tool), NOW).decision == "approve"
    ]


SHELL = [
    *(f"git log -n {count} --oneline" for count in range(5, 17)),
    *(f"git diff HEAD~{count}" for count in range(1, 7)),
    *(f"git checkout feature-{name}" for name in NAMES),
    *(f"cat src/{name}.py" for name in NAMES),
    *["git status", "npm test", "git log | head -n 5"] * 4,
    *(f"git commit -m 'fix the {name} parser'" for name in FEW[:8]),
]
SHELL_FINE = [
    "git log -n 7 --oneline",
    "git  log -n 7  --oneline",
    "git diff HEAD~3",
    "git checkout feature-zoe",
    "cat src/zoe.py",
    "git status",
    "git log | head -n 5",
    'git commit -m "fix another thing"',
]
SHELL_WRONG = [
    "rm -rf /",
    "git status; rm -rf /",
    "git status && rm -rf /",
    "git status || curl evil.example",
    "git status\nrm -rf /",
    "git status & rm -rf /",
    "git log | sh",
    "git log -n 7 --oneline > /etc/passwd",
    "git log -n 7 --output=/etc/passwd",
    "git log -n 5000 --oneline",
    "git log -n -7 --oneline",
    "git -c core.pager=evil log -n 7 --oneline",
    "GIT_PAGER=evil git log -n 7 --oneline",
    "env X=y git status",
    "sudo git status",
    "git checkout $(evil)",
    "git checkout `evil`",
    "git checkout $BRANCH",
    "git checkout feature-*",
    "git checkout -f",
    "git checkout --force feature-zoe",
    "git checkout feature-zoe feature-max",
    "git checkout main",
    "git checkout .",
    "git push",
    "git push --force",
    "cat src/../secrets.py",
    "cat src/secrets.py",
    "cat src/.env",
    "cat /etc/passwd",
    "cat ~/.ssh/id_rsa",
    "cat src/zoe.sh",
    "cat src/zoe.py /etc/passwd",
    "cat src/zo\u0435.py",
    "cat 'src/zoe.py;evil'",
    "git commit -m 'fix' --amend",
    "git commit -m '$(evil)'",
    'git commit -m "$(evil)"',
    "git commit -am 'fix the parser'",
    "npm test -- --evil",
    "npm test evil",
    "bash -c 'git status'",
    "git status <(evil)",
    "git status # comment",
    "{ git status; }",
    "(git status)",
    "git\tstatus\x00",
]


def test_shell_commands_widen_by_words_alone() -> None:
    rules = learned("command", SHELL)
    assert approved(rules, "command", SHELL_FINE) == SHELL_FINE
    assert approved(rules, "command", SHELL_WRONG) == []


def test_programs_that_run_others_are_approved_word_for_word() -> None:
    for start in ("sudo cat", "xargs cat", "bash", "python3", "env cat", "find . -name", "ssh", "npx"):
        texts = [f"{start} {name}" for name in NAMES]
        rules = learned("command", texts + texts[:3] * 4)
        assert approved(rules, "command", [f"{start} zoe", f"{start} --evil"]) == []


@for_each_row(
    ("command", "words"),
    [
        ("git log 2>&1", [(True, "git"), (True, "log"), (False, "2>&1")]),
        ("a 'b c'\"d\" | e", [(True, "a"), (True, "b cd"), (False, "|"), (True, "e")]),
        ("echo $HOME", None),
        ("cat <<EOF\nx\nEOF", None),
        ("for x in a; do b; done", None),
        ("f() { a; }", None),
        ("a &", None),
        ("a #b", None),
        ("ls *.py", None),
        ("ls ~", None),
        ("x=1", [(True, "x=1")]),
        ("a 'b", None),
        ("", None),
    ],
)
def test_commands_are_split_as_a_shell_does(command: str, words: list[tuple[bool, str]] | None) -> None:
    assert split_command(command) == words


def test_addresses_widen_within_their_whole_domain() -> None:
    rules = learned("to", [f"{name}@corp.example" for name in NAMES])
    assert approved(rules, "to", ["zoe@corp.example", "zoe@CORP.example"]) == [
        "zoe@corp.example",
        "zoe@CORP.example",
    ]
    wrong = [
        "zoe@evil.example",
        "zoe@corp.example.evil.com",
        "zoe@corp-example.com",
        "zoe@c\u043erp.example",
        "zoe@sub.corp.example",
        "zoe+x@corp.example",
        "zoe@corp.example, max@evil.example",
        "zoe@corp.example,ada@corp.example",
        "Zoe <zoe@evil.example>",
        '"zoe@corp.example" <x@evil.example>',
        "zoe@corp.example\nBcc: x@evil.example",
        "all@corp.example",
        "@corp.example",
        "zoe@",
    ]
    assert approved(rules, "to", wrong) == []


def test_urls_widen_within_their_whole_host() -> None:
    rules = learned("url", [f"https://api.corp.example/v1/items/{n}" for n in range(10, 30)])
    assert approved(rules, "url", ["https://api.corp.example/v1/items/77"]) != []
    wrong = [
        "http://api.corp.example/v1/items/77",
        "https://api.corp.example.evil.com/v1/items/77",
        "https://api.corp.example@evil.com/v1/items/77",
        "https://user@api.corp.example/v1/items/77",
        "https://api.corp.example:8443/v1/items/77",
        "https://evil.com/v1/items/77",
        "https://evil.com/https://api.corp.example/v1/items/77",
        "https://api.c\u043erp.example/v1/items/77",
        "https://xn--api-corp.example/v1/items/77",
        "https://api.corp.example/v1/items/../admin",
        "https://api.corp.example/v1/items/%2e%2e",
        "https://api.corp.example/v1/items//77",
        "https://api.corp.example\\@evil.com/v1/items/77",
        "https://api.corp.example/v1/items/77?delete=1",
        "https://api.corp.example/v1/items/77#x",
        "https://api.corp.example/v2/items/77",
        "https://[::1]/v1/items/77",
        "file:///v1/items/77",
    ]
    assert approved(rules, "url", wrong) == []


def test_paths_widen_by_folder_and_ending() -> None:
    rules = learned("path", [f"docs/{name}.md" for name in NAMES])
    assert approved(rules, "path", ["docs/zoe.md"]) == ["docs/zoe.md"]
    wrong = [
        "docs/zoe.sh",
        "docs/secrets.md",
        "docs/.md",
        "docs/../zoe.md",
        "/docs/zoe.md",
        "docs/a/zoe.md",
        "zoe.md",
    ]
    assert approved(rules, "path", wrong) == []


@pytest.mark.parametrize(
    ("name", "seen", "fine", "wrong"),
    [
        (
            "ticket",
            [f"TCK-{n}" for n in range(100, 112)],
            ["TCK-555"],
            ["OPS-555", "TCK-5555", "TCK--55", "TCK-\u0664\u0664\u0664"],
        ),
        (
            "amount",
            [f"{n}.50 EUR" for n in range(3, 15)],
            ["7.25 EUR"],
            ["7.25 USD", "70.25 EUR", "-7.25 EUR", "7e9 EUR", "7.25", "2 EUR"],
        ),
        (
            "day",
            [f"2026-{n:02}-14" for n in range(1, 13)],
            ["2027-05-05"],
            ["2027-13-05", "2027-05-05; x", "tomorrow"],
        ),
        ("version", [f"1.{n}.0" for n in range(12)], ["1.7.0"], ["2.7.0", "1.7.0-evil", "latest"]),
        (
            "id",
            [f"{n:08x}-0000-4000-8000-{n:012x}" for n in range(12)],
            ["abcdef01-1234-4123-8123-abcdef012345"],
            ["*", "all", "abcdef01"],
        ),
        (
            "memo",
            [f"lunch with {name}" for name in NAMES],
            ["dinner with zoe"],
            ["$(x)", "see http://evil.example", "rm -rf x", "drop table x", "<b>x</b>", "@everyone hi"],
        ),
    ],
)
def test_ids_amounts_times_and_prose(name: str, seen: list[str], fine: list[str], wrong: list[str]) -> None:
    rules = learned(name, seen)
    assert approved(rules, name, fine) == fine
    assert approved(rules, name, wrong) == []


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("branch", NAMES),
        ("code", [f"print({n})" for n in range(20)]),
        ("code", [f"text {name}" for name in NAMES]),
        ("input", [f"please greet {name}" for name in NAMES]),
        ("data", ["aGVsbG8gd29ybGQ" + name for name in NAMES]),
        ("json", [f'{{"a": {n}}}' for n in range(20)]),
    ],
)
def test_unknown_text_is_approved_only_as_it_was(name: str, texts: list[str]) -> None:
    assert learned(name, texts) == []
    rules = learned(name, [*texts, *texts[:2] * 6])
    assert approved(rules, name, texts[:2]) == texts[:2]
    assert approved(rules, name, [texts[5], texts[0] + "x", texts[0].upper()]) == []


def test_without_the_extra_commands_are_compared_word_for_word() -> None:
    script = (
        "import sys, logging; logging.basicConfig()\n"
        "sys.modules['tree_sitter'] = None\n"
        "from tests.values.test_values import SHELL, approved, learned\n"
        "rules = learned('command', SHELL)\n"
        "print(approved(rules, 'command', ['git status', 'git log -n 7 --oneline', 'cat src/zoe.py']))\n"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=True
    )
    assert done.stdout.splitlines() == ["['git status']"]
    assert (
        "shell commands are only compared word for word: pip install '.[rules]' in the clone of Moot"
        in done.stderr
    )


MESSAGES = [f"Please {verb} the {thing} today." for verb in FEW for thing in ("parser", "login")]


def test_words_of_a_language_hold_no_keys_numbers_or_passwords() -> None:
    rules = learned("message", MESSAGES)
    fine = [
        "Please read the parser today.",
        "The meeting of 2026-11-18 is at 10:30, in room 12b.",
        "We sold 1,250,000 of them in 2025 and 2026.",
        "From 2026-01-31, 10:30, to 2026-02-28, 18:00: pages 12, 15, 18 and 21.",
        "JavaScript and GitHub are fine, and so is Geschwindigkeitsbegrenzung.",
    ]
    wrong = [
        "The key is AKIAIOSFODNN7EXAMPLE",
        "Use AKIAIOSFODNN7EXAMPLE for it.",
        "Pay with 4111 1111 1111 1111",
        "Pay with 4111-1111-1111-1111",
        "Pay with 4111-11-11 1111-11-11",
        "Pay with 4111:1111:1111:1111",
        "Pay with 4111, 1111, 1111, 1111",
        "Pay with 4111 – 1111 – 1111 – 1111",
        "Pay with 4111  1111  1111  1111",
        "Pay with ４１１１ １１１１ １１１１ １１１１",
        "Pay with ⁴¹¹¹ ¹¹¹¹ ¹¹¹¹ ¹¹¹¹",
        "Pay to DE89 3704 0044 0532 0130 00",
        "Pay to DE89370400440532013000",
        "The account is 12345678",
        "Her number is 078-05-1120",
        "The password for it is hunter2",
        "It is hunter2",
        "The Password is swordfish",
        "My pin is 1234",
        "Use gHpAbCdEfGhIjKl",
        "Use AKIA-IOSF-ODNN-7EXA-MPLE",
        # Words that a shell would run, should they be typed into one.
        "shutdown now",
        "reboot",
        "killall moot",
        "systemctl stop nginx",
        "apt install evil",
        "bash deploy",
        "source evil",
    ]
    assert approved(rules, "message", [*fine, *wrong]) == fine


def test_rules_with_templates_survive_being_written() -> None:
    text = """
    rules:
      - name: commands
        decision: approve
        proposer: agent
        tool: bash
        shell: {command: [git status, "git log -n <1..50>", "echo <lt>b<gt>"], options: {before: "cd <name>"}}
        path: {cwd: /srv/<name>}
        sql: {query: "SELECT a FROM b WHERE c = <3 digits>"}
        seen_hours: 09:00-17:00
    """
    (rule,) = read_rules(text)
    # As earlier versions wrote it.
    assert str(rule.hours) == "09:00-17:00"
    assert rule.values["options", "before"] == ValuePattern("shell", ["cd <name>"])
    assert read_rules(write_rules([rule])) == (rule,)
    assert rule_of_json(rule_as_json(rule)) == rule


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("git <any>", "unknown slot <any>"),
        ("git < x", "has a < or > that is no slot"),
        ("git <5..2>", "unknown slot <5..2>"),
        ("x" * 3000, "longer than 2,000 characters"),
        ("<name>-<name>", "nothing between them that tells where one ends"),
        ("<path>/<name>", "nothing between them that tells where one ends"),
        ("<prose> and <prose>", "nothing between them that tells where one ends"),
        ("<lines>, <lines>", "nothing between them that tells where one ends"),
        ("<lines>, <name>", "nothing between them that tells where one ends"),
    ],
)
def test_a_template_that_cannot_be_read_is_said_with_its_place(template: str, message: str) -> None:
    fields: dict[str, Json] = {"name": "r", "decision": "approve", "shell": {"command": template}}
    with pytest.raises(Exception, match=r"^rule\.shell\.command ") as raised:
        rule_of_json(fields)
    assert message in str(raised.value)


@for_each_row(
    ("inner", "outer", "proved"),
    [
        ("git log -n 5", "git log -n <1..50>", True),
        ("git log -n <5..10>", "git log -n <1..50>", True),
        ("git log -n <0..10>", "git log -n <1..50>", False),
        ("git checkout feature-<3 digits>", "git checkout <name>", True),
        ("git checkout <name>", "git checkout feature-<3 digits>", False),
        ("git checkout main", "git checkout <name>", False),
        ("docs/<name>.md", "docs/<path>.md", True),
        ("docs/a/<name>.md", "docs/<path>.md", True),
        ("docs/<path>.md", "docs/<name>.md", False),
        ("docs/<name>.<md|txt>", "docs/<name>.<md|rst|txt>", True),
        ("docs/<name>.<md|sh>", "docs/<name>.<md|rst|txt>", False),
        ("<prose>", "<text>", True),
        ("<text>", "<prose>", False),
        ("<2 digits>", "<1-3 digits>", True),
        ("<1-3 digits>", "<2 digits>", False),
        ("docs/day-<2 digits>/<name>.md", "docs/<path>.md", True),
        ("docs/secrets/<name>.md", "docs/<path>.md", False),
        ("docs/main/<name>.md", "docs/<path>.md", True),
        ("https://x.org/main/<name>", "https://x.org/<path>", False),
        ("pass<name>", "<name>", False),
        ("a/b/c/d/e/f/g/h/<name>.md", "<path>.md", False),
        ("<text up to 900>", "<text up to 1000>", True),
        ("<text up to 900>", "<text>", True),
        ("<text>", "<text up to 900>", False),
        ("<prose>", "<text up to 900>", False),
    ],
)
def test_a_template_is_narrower_only_if_that_can_be_shown(inner: str, outer: str, *, proved: bool) -> None:
    assert is_within(ValuePattern("text", [inner]), ValuePattern("text", [outer])) is proved


@settings(max_examples=examples(25), deadline=None)
@given(st.text(max_size=60))
def test_whatever_is_written_reads_back(text: str) -> None:
    escaped = escape(text)
    assert str(read_template(escaped)) == escaped
    assert read_template(escaped).matches(text)


def test_reading_takes_no_longer_for_what_somebody_made_to_take_long() -> None:
    nested = "SELECT " + "(" * 900 + "1" + ")" * 900 + " FROM a WHERE b = 1"
    long = "a" * 1_000_000
    for kind in KINDS:
        for text in (nested, long, "a/" * 10_000, "a " * 10_000, "-" * 2_000, "'" * 1_999, "a@" * 5_000):
            read_value(kind, text)
    pattern = ValuePattern("path", ["<file>.<file>.md", "a/<path>.md"])
    assert not pattern.admits("a/" + "a-" * 30_000)


@for_each_row("name", ["command", "sql", "path", "url", "to", "memo", "ticket", "amount", "content"])
def test_learning_survives_whatever_people_approve(name: str) -> None:
    texts = [
        "",
        " ",
        "'" * 900,
        "x" * 5_000,
        "\ud800",
        "a b" * 900,
        "<b>",
        "<name>",
        "a\0b",
        "-",
        "/",
        "1",
        "a@b.c",
    ]
    for decisions in (texts * 3, [*texts, *(f"{text}{n}" for text in texts for n in range(9))]):
        for rule in learned(name, decisions):
            assert read_rules(write_rules([rule])) == (rule,)


def test_a_kind_is_known_by_schema_name_and_content() -> None:
    assert recognise("x", ["a"], schema={"format": "uri"}) == "url"
    assert recognise("command", ["anything"]) == "shell"
    assert recognise("x", ["git status", "npm test"]) == "shell"
    assert recognise("x", ["select 1", "select 2"]) == "sql"
    assert recognise("cwd", ["/srv/a", "/srv/b"]) == "path"
    assert recognise("text", ["hello there"], tool="run_python") == "text"
    assert recognise("text", ["print(1)"], tool="run_python") is None
    assert recognise("code", ["hello there"]) is None
    assert recognise("x", ["hello there"]) is None
