"""What a release rests on: one version in all places, and workflows for every Python that it names."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import moot

ROOT = Path(__file__).resolve().parent.parent


def _workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf-8"))
    return read


def test_the_change_log_and_the_citation_know_the_version_of_the_package() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    sections = re.findall(r"^## \[(\S+)\] - (unreleased|\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    version, _, development = moot.__version__.partition(".dev")
    assert version in dict(sections)
    assert bool(development) == (dict(sections)[version] == "unreleased")
    assert [when for _, when in sections[1:] if when == "unreleased"] == [], (
        "only the first may be unreleased"
    )
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    released = next(version for version, when in sections if when != "unreleased")
    assert cited["version"] == released
    assert str(cited["date-released"]) == dict(sections)[released]


def test_the_workflow_tries_every_python_that_the_package_supports() -> None:
    tried = _workflow("test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = pyproject["project"]
    assert project["requires-python"] == f">={tried[0]}"
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert named == tried
    built = pyproject["tool"]["cibuildwheel"]["build"]
    assert built == [f"cp{version.replace('.', '')}-*" for version in tried]


def test_the_release_workflow_finds_the_version_where_it_looks() -> None:
    script = _workflow("release.yml")["jobs"]["version"]["steps"][1]["run"]
    pattern = re.search(r'grep -q "(.+)" src/moot/__init__\.py', script)
    assert pattern is not None
    looked_for = pattern[1].replace('\\"', '"').replace("$version", re.escape(moot.__version__))
    assert re.search(looked_for, (ROOT / "src" / "moot" / "__init__.py").read_text("utf-8"), re.MULTILINE)


def test_only_publishing_may_write() -> None:
    """A workflow starts with read access, and only what needs more is given it."""
    for name in ("test.yml", "release.yml"):
        assert _workflow(name)["permissions"] == {"contents": "read"}
    more = {
        name: job["permissions"]
        for name, job in _workflow("release.yml")["jobs"].items()
        if "permissions" in job
    }
    assert more == {"publish": {"id-token": "write"}, "announce": {"contents": "write"}}
