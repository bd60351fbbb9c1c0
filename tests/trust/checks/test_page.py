"""What the page on rules types is typed beside a `moot up` and answered as it shows; all keys are there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from moot.trust.checks.rule_tests import read_tests, run_tests
from moot.trust.rules import rule_json
from moot.trust.rules.rule_set import RuleSet
from moot.trust.rules.rule_yaml import read_rules, write_rules
from tests.cli.test_page import pattern_of
from tests.test_docs import blocks_of, text_of
from tests.up.moot_up import environment, moot_up, write_config
from tests.warm_start import warm_programs

PAGE = "docs/how-to/let-rules-decide.md"
WAITING = ("moot: proposed as ", "moot: A rule may approve it; ", "moot: Ctrl-C withdraws it.")
TOPIC = "docs/topics/progressive-automation.md"


# Three dozen commands: each loads an interpreter, and a machine may have other things to do.
async def test_the_page_goes_from_approvals_to_a_rule_to_a_trip_wire(tmp_path: Path) -> None:
    blocks = list(blocks_of(text_of(PAGE)))
    write_config(tmp_path, next(block.code for block in blocks if block.info == "yaml"))
    typed = [(block, blocks[at + 1]) for at, block in enumerate(blocks) if block.info == "sh"]
    script = "printf '\\0'\n".join(f"{block.code}\n" for block, _ in typed)
    path = f"{warm_programs()}:{Path(sys.executable).parent}:{environment()['PATH']}"
    async with moot_up(tmp_path, environ=environment(PATH=path)) as up:
        await up.wait_for_state("files", "running", joined=True)
        await up.wait_for_state("approver", "running", joined=True)
        process = await asyncio.create_subprocess_exec(
            "bash", "-euo", "pipefail", "-c", script,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
            env=environment(PATH=path),
        )  # fmt: skip
        output, errors = await process.communicate()
    # A call that waits for the rule says so.
    other = [line for line in errors.decode().splitlines() if not line.startswith(WAITING)]
    assert (process.returncode, other) == (0, [])
    for (block, following), came in zip(typed, output.decode().split("\0"), strict=True):
        assert following.info == "", f"{PAGE}:{block.line}: what does it answer?"
        assert re.fullmatch(pattern_of(following.code), came.strip()), f"{PAGE}:{block.line}: {came}"
    assert len(typed) >= 10


def test_every_key_of_a_rule_is_explained_and_the_example_is_one() -> None:
    text = text_of(TOPIC).partition("## The rules file")[2].partition("\n## ")[0]
    # A row may explain several keys.
    rows = re.findall(r"^\| (`[\w.]+`(?:, `[\w.]+`)*) \|", text, re.MULTILINE)
    explained = {key for row in rows for key in re.findall(r"[\w.]+", row)}
    keys = {*rule_json.RULE_KEYS} - {"limits", "origin"}
    keys |= {f"limits.{key}" for key in rule_json.LIMIT_KEYS}
    keys |= {f"origin.{key}" for key in rule_json._ORIGIN_KEYS}
    assert explained == keys
    example, tests = (block.code for block in blocks_of(text) if block.info == "yaml")
    rules = read_rules(example)
    assert [each.problem for each in run_tests(RuleSet(rules), read_tests(tests), 0.0)] == [None, None]
    assert len(rules) == 3
    assert read_rules(write_rules(rules)) == rules
