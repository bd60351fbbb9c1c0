"""What `make a2a-kit` makes of the kit's report; the kit itself is not a part of the tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.agents.a2a.compatibility_kit import HERE, SUITES, tell

CASE = '<testcase classname="{}" name="{}">{}</testcase>'


def report(folder: Path, *cases: str) -> Path:
    file = folder / "report.xml"
    file.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return file


def test_the_kit_fails_for_what_is_not_known_to_fail_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tomllib.loads((HERE / "known_failures.toml").read_text())
    assert set(known) == set(SUITES)
    for name in SUITES:
        where, reason = next(iter(known[name].items()))
        module, _, test = where.rpartition(".")
        good = CASE.format("tests.mandatory.x", "fine", "")
        old = CASE.format(module, test, '<failure message="x"/>')
        new = CASE.format("tests.mandatory.x", "other", '<failure message="x"/>')
        assert tell(name, report(tmp_path, good, old))
        assert reason in capsys.readouterr().out
        assert not tell(name, report(tmp_path, good, new))
        assert "tests.mandatory.x.other: NOT KNOWN" in capsys.readouterr().out
        # A kit that did not run has shown nothing.
        assert not tell(name, report(tmp_path))
