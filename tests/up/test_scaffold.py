"""`moot init`: templates that are complete, overwrite nothing, and can be loaded as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from moot.agents.model.agent_settings import Api
from moot.cli import main
from moot.config import load
from moot.errors import UsageError
from moot.trust.rules.rule_store import RuleStore
from moot.up.scaffold import TemplateValues, make, space_name, template_named, templates

NAMES = ["filesystem", "coder", "coding-agent", "empty", "research-team"]


def test_there_are_these_templates() -> None:
    assert [template.name for template in templates()] == NAMES
    with pytest.raises(UsageError, match="Choose from filesystem, coder, coding-agent, empty, research-team"):
        template_named("no-such")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_made_can_be_loaded_without_a_note(tmp_path: Path, name: str) -> None:
    template = template_named(name)
    values = TemplateValues(space="lab", base_url="http://localhost:1/v1", model="m-1", key_env="THE_KEY")
    made = make(template, tmp_path, values)
    assert Path("moot.yaml") in made
    configuration = load(tmp_path / "moot.yaml", environ={})
    assert configuration.notes == ()
    assert configuration.spaces["lab"].default_participant == "you"
    for path in made:
        text = (tmp_path / path).read_text("utf-8")
        assert "@" not in text.replace("@space.", "").replace("@agentclientprotocol/", ""), path
    agents = [
        member.args for member in configuration.spaces["lab"].members.values() if member.command == "moot"
    ]
    for args in (given for given in agents if given[0] == "agent"):
        given = dict(zip(args[1::2], args[2::2], strict=False))
        assert (given["--base-url"], given["--model"]) == ("http://localhost:1/v1", "m-1")
        assert (given["--api-key-env"], given["--api"]) == ("THE_KEY", "chat")
        # What it is told to read is there.
        assert Path(given["--instructions"]) in made


def test_the_api_decides_which_endpoint_model_and_key_are_written(tmp_path: Path) -> None:
    for api in get_args(Api):
        folder = tmp_path / api
        assert main(["init", "coder", str(folder), "--space", "lab", "--api", api]) == 0
        args = load(folder / "moot.yaml", environ={}).spaces["lab"].members["coder"].args
        given = dict(zip(args[1::2], args[2::2], strict=False))
        assert given["--api"] == api
        vendor = "anthropic" if api == "anthropic" else "openai"
        assert given["--base-url"] == f"https://api.{vendor}.com/v1"
        assert given["--api-key-env"] == f"{vendor.upper()}_API_KEY"
        assert given["--model"].startswith("claude" if vendor == "anthropic" else "gpt")


@pytest.mark.parametrize("name", ["coder", "coding-agent", "research-team", "filesystem"])
def test_agents_of_templates_cannot_change_anything_by_themselves(tmp_path: Path, name: str) -> None:
    """Whoever is new proposes (MEW 7.3); only the lead of a team may write, and only to the notes."""
    make(template_named(name), tmp_path, TemplateValues(space="lab"))
    space = load(tmp_path / "moot.yaml", environ={}).spaces["lab"]
    for participant, settings in space.config.participants.items():
        rights = settings.capabilities
        assert participant == "you" or not any(right.matches("capability/grant", {}) for right in rights)
        if participant == "approver":
            # It approves by rules that a person accepted, and accepts none itself.
            assert not any(right.matches("trust/accept", {}) for right in rights)
            continue
        if participant in ("you", "lead") or participant not in space.members:
            continue
        for tool in ("write_file", "edit_file", "run"):
            call = {"method": "tools/call", "params": {"name": tool, "arguments": {}}}
            allowed = [right for right in rights if right.matches("mcp/request", call, to=["files"])]
            assert not allowed, (participant, tool)


@pytest.mark.parametrize("name", ["coder", "coding-agent", "research-team", "filesystem"])
def test_a_new_space_starts_with_a_rule_by_origin_and_what_its_tools_do(tmp_path: Path, name: str) -> None:
    made = make(template_named(name), tmp_path, TemplateValues(space="lab"))
    assert Path(".moot/trust/lab/rules.yaml") in made
    store = RuleStore.open(tmp_path / ".moot/trust/lab")
    (rule,) = store.rules
    assert (rule.name, rule.decision, rule.ask, store.fault) == (
        "by-origin",
        "approve",
        "when_untrusted",
        None,
    )
    # Whatever replaces a file asks, as it did.
    assert all(entry.traits.effect in ("reads", "destroys") for entry in store.tools)
    space = load(tmp_path / "moot.yaml", environ={}).spaces["lab"]
    for member, may in (("approver", "moot/origins"), ("you", "moot/endorse")):
        rights = space.config.participants[member].capabilities
        assert any(right.matches(may, {}) for right in rights)
    assert not any(
        right.matches("moot/endorse", {}) for right in space.config.participants["approver"].capabilities
    )


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    template = template_named("filesystem")
    (tmp_path / "agent.py").write_text("mine")
    with pytest.raises(UsageError, match=r"would be overwritten: agent\.py"):
        make(template, tmp_path, TemplateValues(space="lab"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.py"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "space.yaml").write_text("x")
    with pytest.raises(UsageError, match="this folder has a space"):
        make(template, other, TemplateValues(space="lab"))


def test_what_a_project_ignores_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("dist/\n.moot/")
    make(template_named("empty"), tmp_path, TemplateValues(space="lab"))
    assert (tmp_path / ".gitignore").read_text() == "dist/\n.moot/\n*.token\n__pycache__/\n"


@pytest.mark.parametrize(
    "values",
    [
        TemplateValues(space="a b"),
        TemplateValues(space=""),
        TemplateValues(space="lab", base_url='http://x"'),
        TemplateValues(space="lab", base_url=""),
        TemplateValues(space="lab", model="${TOKEN}"),
        TemplateValues(space="lab", model="a\nb"),
        TemplateValues(space="lab", key_env="sk-the-key-itself"),
    ],
)
def test_values_that_would_break_the_file_are_refused(tmp_path: Path, values: TemplateValues) -> None:
    with pytest.raises(UsageError):
        make(template_named("coder"), tmp_path, values)
    assert list(tmp_path.iterdir()) == []


def test_a_space_is_called_as_its_folder_where_that_works(tmp_path: Path) -> None:
    assert space_name(Path("/srv/my lab!")) == "my-lab"
    assert space_name(Path("/srv/…")) == "lab"
    assert space_name(Path("/")) == "lab"


def test_the_command_says_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "Müllers team"
    assert main(["init", "research-team", str(folder), "--model", "m"]) == 0
    output = capsys.readouterr().out
    # To be pasted as it is.
    assert f"  cd '{folder}'\n" in output
    assert "export OPENAI_API_KEY=…" in output
    assert "moot up" in output
    assert main(["init", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["TEMPLATE", *NAMES]
    assert main(["init", "empty", str(tmp_path / "e"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["moot.yaml"]
    assert main(["init", "nonsense", str(tmp_path / "n")]) == 2
    assert main(["init", "--list", "--json"]) == 0
    assert "no template is called `nonsense`." in capsys.readouterr().err


def test_a_path_alone_is_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in other programs: `init .` means this folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "."]) == 0
    assert main(["init", "./other", "--json"]) == 0
    assert (tmp_path / "moot.yaml").is_file()
    assert (tmp_path / "other" / "moot.yaml").is_file()
    # A word alone is a template, so a typing error makes no folder.
    assert main(["init", "codr"]) == 2
    assert "Did you mean coder?" in capsys.readouterr().err
