"""Files that are meant to harm whoever loads them: YAML's tricks, names that are paths, odd variables."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.xprotocol.adapter.config.config_loader import LoadedConfig, read_settings
from tests.xprotocol.adapter.adapter_environment import notes_server, running_adapter

BASE = """
identity: {key_file: %s/keys/adapter.key}
relay: {urls: ["ws://127.0.0.1:1"]}
"""


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> LoadedConfig:
    file = folder / "adapter.yml"
    file.write_text((BASE % folder) + text)
    begun = time.process_time()
    found = read_settings(file, environ=environ or {})
    assert time.process_time() - begun < 3
    return found


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


HARM = {
    "runs code": "trust: !!python/object/apply:os.system ['touch %s/harm']",
    "runs code by name": "trust: !!python/name:os.system",
    "a tag of its own": "trust: !harm [x]",
    "a billion laughs": laughs(12),
    "a circle": "trust: &a [*a]",
    "the same key twice": "trust: []\ntrust: [x]",
    "a second document": "---\ntrust: []",
    "a number as a key": "1: 2",
    "a list as a key": "? [a]\n: b",
    "deep": "trust: " + "[" * 5_000 + "]" * 5_000,
    "a long number": "limits: {calls: " + "9" * 5_000 + "}",
    "not a number": "limits: {upstream_call_seconds: .nan}",
    "for ever": "limits: {upstream_call_seconds: .inf}",
    "yes and no": "audit: {enabled: yes, plaintext: 'no'}",
    "nothing": "limits: {calls: 0}",
    "less than nothing": "limits: {calls: -5}",
}


@pytest.mark.parametrize("what", HARM)
def test_what_yaml_can_do_ends_in_words_and_never_in_deeds(tmp_path: Path, what: str) -> None:
    text = HARM[what]
    found = loaded(tmp_path, text % tmp_path if "%s" in text else text)
    assert not (tmp_path / "harm").exists()
    assert found.problems
    for problem in found.problems:
        assert len(str(problem)) < 1_000
        assert str(problem).isprintable()


NAMES = (
    "../../etc", "a/b", "/etc/passwd", "..", ".", "", " ", "a\nb", "a\x00b", "\x1b[2J", "\u202eevil",
    "a" * 500, "-rf", "name with spaces", "a:b", "a;b", "$(id)", "`id`", "%s%n", "con", "ｆｕｌｌ",
)  # fmt: skip


async def test_names_and_namespaces_lead_to_no_file_and_no_other_namespace(tmp_path: Path) -> None:
    """Whatever may be a name is only ever a name; the folder holds what it always holds."""
    usable: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        for namespace in ("com.acme.x", name):
            one = {
                "name": name,
                "transport": "stdio",
                "command": "/nowhere",
                "xprotocol_namespace": namespace,
            }
            if not loaded(tmp_path, yaml.safe_dump({"mcp_sources": [one]})).problems:
                usable[name] = one | {"xprotocol_namespace": f"com.acme.n{len(usable)}", "pin": True}
    assert not any(set(name) & set("/\x00\n\x1b\u202e") for name in usable)
    notes = notes_server(tmp_path)
    async with running_adapter(tmp_path, notes, mcp_sources=[notes.source, *usable.values()]) as adapter:
        assert (await adapter.alice.ask(f"{notes.namespace}.read_note", {"name": "one"})).code is None
        store = adapter.adapter.settings.store
    assert {each.name for each in tmp_path.iterdir()} == {
        "adapter.yml",
        "desk.folder",
        "keys",
        "relay",
    }
    assert all(each.is_file() for each in store.iterdir())


def test_only_variables_that_the_file_names_are_read_and_none_is_shown(tmp_path: Path) -> None:
    environ = {"GOOD": "pear-5512", "OTHER": "plum-8840", "EMPTY": "", "LINES": "a\r\nX-Evil: 1"}
    source = {
        "name": "one",
        "transport": "sse",
        "url": "http://127.0.0.1:1/mcp",
        "xprotocol_namespace": "com.acme.one",
    }
    for name in (
        "EMPTY",
        "LINES",
        "MISSING",
        "BAD=NAME",
        "GOOD\n",
        "",
        "GOOD ",
        "$GOOD",
        "${GOOD}",
        "A\x00B",
    ):
        document = {"mcp_sources": [source | {"auth": {"type": "bearer", "token_env": name}}]}
        found = loaded(tmp_path, yaml.safe_dump(document), environ)
        assert found.problems, name
        assert not any(value in str(found) for value in environ.values() if len(value) > 3), name
    fine = loaded(
        tmp_path,
        yaml.safe_dump({"mcp_sources": [source | {"auth": {"type": "bearer", "token_env": "GOOD"}}]}),
        environ,
    )
    assert not fine.problems
    assert "pear-5512" not in repr(fine)
    assert "plum-8840" not in repr(fine)
    for header in ("X-Evil: 1\r\nY", "Host", "", "a b", "Content-Length", "X\x00"):
        auth = {"type": "api_key", "header": header, "token_env": "GOOD"}
        found = loaded(tmp_path, yaml.safe_dump({"mcp_sources": [source | {"auth": auth}]}), environ)
        if not found.problems:
            assert header.replace("-", "").isalnum()


async def test_a_command_is_never_a_shell_s(tmp_path: Path) -> None:
    """D-72, D-87: whatever looks like a shell's syntax is an argument."""
    notes = notes_server(tmp_path)
    harm = tmp_path / "harm"
    notes.options["flags"] = [f"; touch {harm}", f"$(touch {harm})", f"`touch {harm}`", f"| touch {harm}"]
    notes.options["env"] = {"PATH": "/usr/bin:/bin", "X": f"$(touch {harm})"}
    async with running_adapter(tmp_path, notes) as adapter:
        answer = await adapter.alice.ask(f"{notes.namespace}.get_environment", {})
        reply = yaml.safe_load(answer.payload["content"])
        assert reply["argv"] == notes.options["flags"]
        assert reply["env"]["X"] == f"$(touch {harm})"
    assert not harm.exists()


def test_a_file_that_never_ends_and_one_that_is_no_file_are_refused_soon(tmp_path: Path) -> None:
    for name in ("/dev/zero", str(tmp_path), "/proc/self/mem", str(tmp_path / "missing")):
        found = read_settings(Path(name), environ={})
        assert found.problems
    link = tmp_path / "loop.yml"
    os.symlink(link, link)
    assert read_settings(link, environ={}).problems
    (tmp_path / "latin.yml").write_bytes(b"identity: {display_name: \xff}")
    assert "UTF-8" in str(read_settings(tmp_path / "latin.yml", environ={}).problems[0])
