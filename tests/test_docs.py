"""The pages hold: their code runs and shows what they say it shows, their links lead somewhere, and the
commands, targets, files and rulings they name exist."""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.make_docs import PAGES
from tools.make_docs import page as generated

from moot.cli import main as moot_command
from moot.cli.command_table import COMMANDS, make_parser
from moot.cli.process.program import subcommands_of
from moot.config.loader import _AROUND_KEYS
from moot.config.participant_reader import PARTICIPANT_KEYS
from moot.config.space.space_reader import read_space
from moot.errors import UsageError
from moot.xprotocol.translation.quality import quality_of
from tests.rows import for_each_row

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "moot"
TOP_LEVEL = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")

ARROW = "# → "


def names_of_pages() -> list[str]:
    """Every page, as a path from the root."""
    return [*TOP_LEVEL, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


@cache
def text_of(page: str) -> str:
    """A page as the site has it: as it stands, or as `make docs` makes it from the code."""
    return generated(page) if page in PAGES else (ROOT / page).read_text("utf-8")


PAGE_NAMES = names_of_pages()
WRITTEN = [page for page in PAGE_NAMES if page not in PAGES]
WITH_CODE = [
    page for page in WRITTEN if page in ("README.md", "docs/tutorial.md") or page.startswith("docs/how-to/")
]


# Reading a page


class Block(NamedTuple):
    """One fenced block: what stands behind the fence, its lines, and where they start in the page."""

    info: str
    code: str
    line: int
    before: str


FENCE = re.compile(r"^(`{3,})(.*)$")


def blocks_of(text: str) -> Iterator[Block]:
    fence, info, start, before = "", "", 0, ""
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence:
            if found and line.strip() == fence:
                yield Block(info, "\n".join(lines) + "\n", start, before)
                fence = before = ""
            else:
                lines.append(line)
        elif found:
            fence, info, start, lines = found[1], found[2].strip(), number + 1, []
        elif line.strip():
            before = line
    assert not fence, "a fence is not closed"


def prose_of(text: str) -> str:
    """The page without its fenced blocks."""
    kept, inside = [], False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


# The code runs


def shown_results(code: str) -> dict[int, str]:
    """Line → what the page says comes out, for the last line of the statement that the arrow belongs to."""
    results: dict[int, str] = {}
    owner = 0
    for number, line in enumerate(code.splitlines(), 1):
        bare = line.strip()
        if bare.startswith(ARROW.strip()):
            assert owner, f"line {number}: an arrow without a statement above it"
            result = bare[len(ARROW) :]
            results[owner] = f"{results[owner]}\n{result}" if owner in results else result
        elif ARROW in line:
            results[number] = line.split(ARROW, 1)[1].strip()
            owner = number
        elif bare and not bare.startswith("#"):
            owner = number
    return results


def run_block(block: Block, page: str, names: dict[str, object]) -> list[str]:
    """Run one block; returns where what came out is not what the page shows."""
    expected = shown_results(block.code)
    wrong: list[str] = []
    # As many lines before it as in the page, so that a traceback names the page's own line.
    tree = ast.parse("\n" * (block.line - 1) + block.code, page)
    for statement in tree.body:
        last = (statement.end_lineno or 0) - block.line + 1
        printed = io.StringIO()
        value: object = None
        with redirect_stdout(printed):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), page, "eval"), names)  # noqa: S307
            else:
                exec(compile(ast.Module([statement], []), page, "exec"), names)  # noqa: S102
        if last in expected:
            came = printed.getvalue().rstrip("\n") or repr(value)
            wanted = expected.pop(last)
            if came != wanted:
                wrong.append(f"{page}:{last + block.line - 1}: shows {wanted!r}, but {came!r} came out")
    wrong += [f"{page}:{line + block.line - 1}: an arrow that belongs to no statement" for line in expected]
    return wrong


@for_each_row("page", WITH_CODE)
def test_every_python_block_of_a_page_runs_and_gives_what_it_shows(page: str) -> None:
    names: dict[str, object] = {"__name__": "page"}
    wrong: list[str] = []
    for block in blocks_of(text_of(page)):
        if block.info == "python":
            wrong += run_block(block, page, names)
    assert not wrong, "\n".join(wrong)


def test_a_python_block_that_does_not_run_says_why() -> None:
    """The line above it gives the reason, in words that begin with "Not run:"."""
    for page in WRITTEN:
        for block in blocks_of(text_of(page)):
            if block.info.startswith("python") and (block.info != "python" or page not in WITH_CODE):
                assert block.info == "python no-run", f"{page}:{block.line}: fence {block.info!r}"
                assert block.before.startswith("Not run: "), f"{page}:{block.line}: no reason given"


def test_the_harness_notices_a_result_that_differs() -> None:
    block = Block("python", "a = 1\na + 1  # → 3\nprint('x\\ny')\n# → x\n# → y\n", 10, "")
    assert run_block(block, "page", {}) == ["page:11: shows '3', but '2' came out"]


# The links lead somewhere

LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
ANCHOR = re.compile(r'<a id="([^"]+)">')


@cache
def anchors_of(page: str) -> set[str]:
    """The anchors that a reader's browser knows: headings, the way GitHub spells them, and explicit ones."""
    prose = prose_of(text_of(page))
    anchors: set[str] = set(ANCHOR.findall(prose))
    seen: dict[str, int] = {}
    for title in re.findall(r"^#{1,6} (.+)$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def broken_links(page: str) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", prose_of(text_of(page)))
    for target in LINK.findall(prose):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        name = str(there.resolve().relative_to(ROOT))
        if not there.exists():
            yield f"{page}: {target}: no such file"
        elif anchor and anchor not in anchors_of(name):
            yield f"{page}: {target}: no such heading"


def test_every_relative_link_and_anchor_resolves() -> None:
    broken = [fault for page in PAGE_NAMES for fault in broken_links(page)]
    assert not broken, "\n".join(broken)


@for_each_row("page", PAGES)
def test_a_page_that_the_site_makes_from_the_code_has_a_few_words_in_its_place(page: str) -> None:
    """They have its title, say where its facts stand in the code, and by which command it is printed."""
    placeholder = (ROOT / page).read_text("utf-8")
    assert placeholder.splitlines()[0] == generated(page).splitlines()[0]
    assert len(placeholder.split()) <= 80
    assert f"`.venv/bin/python -m tools.make_docs {page[5:-3]}` prints it." in placeholder
    links = [link.partition("#")[0] for link in LINK.findall(placeholder)]
    assert all(((ROOT / page).parent / link).exists() for link in links)
    assert all((PACKAGE / file).exists() for file in re.findall(r"`([\w./-]+\.py)`", placeholder))


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[str](), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in LINK.findall(prose_of(text_of(page))):
            there = ((ROOT / page).parent / target.partition("#")[0]).resolve()
            name = str(there.relative_to(ROOT)) if there.is_relative_to(ROOT) else ""
            if name in PAGE_NAMES:
                waiting.append(name)
    assert set(PAGE_NAMES) <= reached


# What is named exists


def commands_in(page: str) -> Iterator[str]:
    """Every command line of a page: what stands in backticks, and the lines of shell blocks."""
    text = text_of(page)
    yield from re.findall(r"`([^`\n]+)`", prose_of(text))
    for block in blocks_of(text):
        if block.info in ("", "sh", "console"):
            yield from (line.strip().removeprefix("$ ") for line in block.code.splitlines())


@cache
def make_targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    return frozenset(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


@cache
def help_of(*arguments: str) -> str | None:
    """What `moot … --help` prints, None for a command that there is not."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as ended:
        moot_command([*arguments, "--help"])
    return printed.getvalue() if ended.value.code == 0 else None


@cache
def moot_parser() -> argparse.ArgumentParser:
    return make_parser(COMMANDS)


def command_in(words: list[str]) -> tuple[str, ...]:
    """The words that name a command, with its group; the first word in any case."""
    found: list[str] = []
    choices = subcommands_of(moot_parser())
    for word in words:
        if word.startswith("-"):
            break
        if found and word not in choices:
            # A word behind a group that it does not have is a mistake, behind a command an argument.
            return (*found, word) if choices else tuple(found)
        found.append(word)
        choices = subcommands_of(choices[word]) if word in choices else {}
    return tuple(found)


def test_every_make_target_that_a_page_names_exists() -> None:
    for page in WRITTEN:
        named = [match[1] for line in commands_in(page) if (match := re.match(r"make ([a-z][\w-]*)", line))]
        assert set(named) <= make_targets(), page


def test_every_moot_command_and_option_that_a_page_names_exists() -> None:
    named = [(page, line) for page in WRITTEN for line in commands_in(page)]
    for page, line in named:
        called = re.match(r"(?:\.venv/bin/)?moot((?: [\w./-]+)*)", line)
        if called is None or not called[1]:
            continue
        printed = help_of(*command_in(called[1].split()))
        assert printed is not None, f"{page}: {line!r}: no such command"
        for option in re.findall(r"(?<=\s)--[a-z-]+", line.partition("#")[0]):
            assert option in printed, f"{page}: {line!r}: no option {option}"


def test_the_help_lists_the_commands_that_these_tests_find() -> None:
    printed = help_of()
    assert printed is not None
    assert "demo" in printed
    assert help_of("no-such-command") is None


def test_every_source_file_that_a_page_names_exists() -> None:
    """Files are named from the root, or from src/moot."""
    named = [(page, file) for page in WRITTEN for file in re.findall(r"`([\w./-]+\.py)`", text_of(page))]
    missing = [each for each in named if not (PACKAGE / each[1]).exists() and not (ROOT / each[1]).exists()]
    assert not missing


def test_every_ruling_has_one_line() -> None:
    lines = re.findall(
        r'^- <a id="d-(\d{2,3})"></a>D-(\d{2,3}): ', text_of("docs/decisions/rulings.md"), re.MULTILINE
    )
    assert [name for name, _ in lines] == [f"{number:02}" for number in range(1, len(lines) + 1)]
    assert len(lines) >= 103
    assert all(anchor == name for anchor, name in lines)


def test_every_ruling_says_where_it_lives() -> None:
    for line in text_of("docs/decisions/rulings.md").splitlines():
        if line.startswith('- <a id="d-'):
            place = re.search(r"\. (?:`\w+` in )?`([\w/.]+)`(?: \([^()]+\))?$", line)
            assert place, line
            assert (PACKAGE / place[1]).exists(), line


def test_what_the_rulings_name_inside_a_file_is_there() -> None:
    """`file.py` (`name`, `name`), or `name` in `file.py`."""
    text = text_of("docs/decisions/rulings.md")
    named = [
        (file, name)
        for file, names in re.findall(r"`([\w/]+\.py)` \(((?:`\w+`(?:, )?)+)\)", text)
        for name in re.findall(r"`(\w+)`", names)
    ]
    named += [(file, name) for name, file in re.findall(r"`([\w/]+)` in `([\w/]+\.py)`", text)]
    assert len(named) > 20
    missing = [f"{name} in {file}" for file, name in named if name not in (PACKAGE / file).read_text("utf-8")]
    assert not missing


@pytest.mark.requirement("MEW-2.2-7")
def test_the_table_of_settings_has_every_key_that_a_space_takes() -> None:
    with pytest.raises(UsageError) as fault:
        read_space("lab", {"no_such_key": 1})
    known = set(str(fault.value).partition("known are ")[2].split(", "))
    own, _, around = text_of("docs/how-to/set-up-a-space.md").partition("## What a `moot.yaml` adds")
    assert set(re.findall(r"^\| `(\w+)` \|", own, re.MULTILINE)) == known
    assert set(re.findall(r"^\| `(\w+)` \|", around, re.MULTILINE)) == _AROUND_KEYS
    named = set(
        re.findall(r"`(\w+)`", around.partition("And a participant may have")[2].partition("\n\n")[0])
    )
    assert named <= PARTICIPANT_KEYS


@pytest.mark.requirement("MCPX-6.1-3", "MCPX-6.3-1", "MEW-6.1-3", "MEW-6.5-1")
def test_the_readme_promises_nothing_before_1_0() -> None:
    stability = text_of("README.md").partition("## Stability")[2].partition("\n## ")[0]
    for words in ("experimental", "breaking changes", "every 0.x release", "begin with 1.0"):
        assert words in " ".join(stability.split())


@pytest.mark.requirement("XP-0-1", "XP-0-7")
def test_pages_say_which_xprotocol_is_meant_and_whose_it_is_not() -> None:
    stability = text_of("README.md").partition("## Stability")[2].partition("\n## ")[0]
    assert "version 0.1, of XProtocol.ai" in " ".join(stability.split())
    assert "neither has anything to do with XProtocol.org" in " ".join(stability.split())
    topic = text_of("docs/topics/xprotocol.md")
    for words in ("version 0.1, a draft", "`xp.mcp.*`", "document of XProtocol is not published", "`xp1`"):
        assert words in topic


@pytest.mark.requirement("XP-0-8", "XP-8.6-3")
def test_code_and_texts_are_shipped_with_their_licences() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text("utf-8")
    assert "CC-BY-4.0" in text_of("docs/LICENSE.md")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'license = "Apache-2.0"' in project
    assert 'license-files = ["LICENSE"]' in project


@pytest.mark.requirement("XP-4.6-31")
def test_the_page_on_xprotocol_admits_that_poor_names_give_poor_annotations() -> None:
    admitted = text_of("docs/topics/xprotocol.md").partition("## What names cannot tell")[2]
    assert "handle_thing" in admitted.partition("\n## ")[0]
    assert quality_of("", ["thing"]).score < 0.4
    assert quality_of("Reads a text file from the project folder and returns it.", ["file"]).score >= 0.4


@pytest.mark.requirement("XP-8.6-1")
def test_the_page_on_xprotocol_spells_out_what_a_hijacked_adapter_could_do() -> None:
    harm = text_of("docs/topics/xprotocol.md").partition("## If an adapter is taken over")[2]
    for words in ("sign events in its name", "in the clear", "forward them", "revoke"):
        assert words in harm


def test_every_section_of_the_dialect_tables_that_code_cites_exists() -> None:
    """`dialects.md section 7`, `dialects.md 2 and 5`."""
    sections = set(re.findall(r"^## (\d+)\. \S", text_of("docs/reference/dialects.md"), re.MULTILINE))
    citation = re.compile(r"dialects\.md (?:sections? )?(\d+)(?: and (\d+))?")
    files = [file for file in PACKAGE.rglob("*") if file.suffix in (".py", ".pyx", ".yaml", ".js")]
    cited = {
        number
        for file in files
        for numbers in citation.findall(file.read_text("utf-8"))
        for number in numbers
        if number
    }
    assert len(cited) > 4
    assert cited <= sections


@pytest.mark.requirement("M3P-65")
def test_the_vectors_report_on_the_dotted_dialect_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert moot_command(["conformance", "--only", "M3P", "--json"]) == 0
    output = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rows = {row for vector in output for row in vector.get("rows", ())}
    assert len([row for row in rows if row.startswith("M3P-")]) > 30
    assert "`moot conformance --only M3P`" in text_of("docs/topics/dialects.md")


@pytest.mark.requirement("M3P-64")
def test_the_page_on_dialects_answers_what_the_m3p_draft_leaves_open() -> None:
    answers = text_of("docs/topics/dialects.md").partition("## What m3p is to us")[2]
    for words in ("existing clients keep working", "machines", "protocol before operation", "consistency"):
        assert words in " ".join(answers.split())


def test_every_decision_page_gives_question_decision_and_reason() -> None:
    """What it costs is said where somebody could be surprised by it."""
    pages = [page for page in WRITTEN if re.fullmatch(r"docs/decisions/\d{4}-.*\.md", page)]
    numbers = [Path(page).name[:4] for page in pages]
    # One page a number. Pages are written at the same time, so a number may still be missing.
    assert len(pages) > 60
    assert numbers == sorted(set(numbers))
    for page in pages:
        parts = re.findall(r"^\*\*(Question|Decision|Reason|Cost)\.\*\*\s+\S", text_of(page), re.MULTILINE)
        assert parts in (["Question", "Decision", "Reason"], ["Question", "Decision", "Reason", "Cost"]), page


def test_the_taste_of_the_demo_in_the_readme_is_what_the_demo_prints() -> None:
    """Shortened: whole lines are left out, none is changed."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert moot_command(["demo"]) == 0
    real = printed.getvalue().splitlines()
    tastes = [block.code for block in blocks_of(text_of("README.md")) if "◀" in block.code]
    assert tastes
    for taste in tastes:
        for line in taste.splitlines():
            assert line in real or line.strip() in ("", "…"), line
