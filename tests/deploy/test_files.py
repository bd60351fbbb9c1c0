"""What people deploy with: what the files start exists, and what they promise is there."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from moot.cli import main as moot_command
from moot.cli.adapter import main as adapter_command
from moot.config import check
from moot.config.gateway_config import GatewayConfig
from tests.console.gateway_and_members import Loop, Running, spaces
from tests.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
HEALTH_CHECK = ROOT / "deploy" / "docker" / "healthcheck.py"


def unit(path: Path) -> dict[str, dict[str, str]]:
    reader = configparser.ConfigParser(strict=False, interpolation=None)
    reader.optionxform = str  # type: ignore[assignment,method-assign]  # as ConfigParser's own manual has it
    reader.read_string(path.read_text("utf-8"))
    return {name: dict(section) for name, section in reader.items()}


def dockerfile() -> dict[str, str]:
    """The last instruction of each name."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: rest for name, _, rest in (line.partition(" ") for line in lines)}


def understands(command: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether a command knows all these options: it does not complain before it shows its help."""
    with pytest.raises(SystemExit) as ended:
        command([*arguments, "--help"])
    return ended.value.code == 0 and "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_there_is_and_is_hardened(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = unit(path)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    commands = {"moot": moot_command, "xprotocol-adapter": adapter_command}
    assert understands(commands[Path(program).name], arguments, capsys)
    assert service["ExecReload"] == "/bin/sh -c 'kill -HUP $MAINPID'"
    assert int(unit(path)["Unit"]["StartLimitBurst"]) < 60 / int(service["RestartSec"]), "it gives up"
    assert (service["NoNewPrivileges"], service["UMask"]) == ("yes", "0077")
    assert service["EnvironmentFile"].startswith("-"), "secrets are optional"
    if "@" not in path.name:
        assert (service["ProtectSystem"], service["ProtectHome"]) == ("strict", "yes")
        assert service["CapabilityBoundingSet"] == ""
        assert service.get("DynamicUser") == "yes" or service["User"] != "root"


def test_the_image_runs_without_root_and_starts_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    answer = dockerfile()
    assert answer["USER"] == "10001:10001"
    assert yaml.safe_load(answer["VOLUME"]) == ["/var/lib/moot"]
    assert yaml.safe_load(answer["ENTRYPOINT"]) == ["moot"]
    arguments = yaml.safe_load(answer["CMD"])
    assert arguments[arguments.index("--data") + 1] == "/var/lib/moot"
    assert understands(moot_command, arguments, capsys)
    assert int(answer["EXPOSE"]) == GatewayConfig().port
    text = (ROOT / "Dockerfile").read_text("utf-8")
    compiled = re.search(r'python -c "(.+)"', text)
    assert compiled is not None
    # Holds here as well: a renamed module would break the build of the image.
    subprocess.run([sys.executable, "-c", compiled[1]], check=True, timeout=HANG_SECONDS)  # noqa: S603
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in source.split():
            assert (ROOT / name).exists(), name
            assert f"!{name.removesuffix('/healthcheck.py')}\n" in (ROOT / ".dockerignore").read_text("utf-8")


def test_compose_keeps_the_container_small_and_its_configuration_is_one(tmp_path: Path) -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]["moot"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    mounted = dict(volume.split(":")[:2] for volume in service["volumes"])
    config = ROOT / "deploy" / "moot.yaml"
    assert mounted[f"./{config.relative_to(ROOT)}"] == "/etc/moot/moot.yaml"
    assert mounted["data"] == "/var/lib/moot"
    lines = check(config, environ={}, data=tmp_path, host="0.0.0.0", port=None)  # noqa: S104
    assert any(line.startswith("space lab") for line in lines)
    assert not list(tmp_path.iterdir())
    health = re.search(r"CMD (\[.*\])", dockerfile()["HEALTHCHECK"])
    assert health is not None
    assert service["healthcheck"]["test"] == ["CMD", *yaml.safe_load(health[1])]


def test_the_health_check_asks_the_gateway_whether_it_is_ready(tmp_path: Path, loop: Loop) -> None:
    gateway = Running(tmp_path, loop, spaces())
    try:
        assert ask(gateway.port) == (0, '{"status":"ready"}\n')
        gateway.gateway.readiness.phase = "starting"
        code, output = ask(gateway.port)
        assert (code, '"status":"starting"' in output) == (1, True)
    finally:
        gateway.stop()
    code, output = ask(gateway.port)
    assert (code, output.startswith(f"no answer on port {gateway.port}")) == (1, True)


def ask(port: int) -> tuple[int, str]:
    done = subprocess.run(  # noqa: S603  # our own line
        [sys.executable, "-I", str(HEALTH_CHECK)],
        env={"MOOT_GATEWAY__PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


PROXIES = [ROOT / "deploy" / "nginx" / "moot.conf", ROOT / "deploy" / "caddy" / "Caddyfile"]


@pytest.mark.parametrize("path", PROXIES, ids=lambda path: path.name)
def test_the_settings_that_a_proxy_needs_are_settings(path: Path, tmp_path: Path) -> None:
    """What stands below "In moot.yaml:" is read as people would paste it."""
    _, _, advice = path.read_text("utf-8").partition("# In moot.yaml:\n")
    block = [line.removeprefix("# ").rstrip() for line in advice.partition("\n\n")[0].splitlines()]
    file = tmp_path / "moot.yaml"
    spaces = (ROOT / "deploy" / "moot.yaml").read_text("utf-8")
    file.write_text(spaces + textwrap.dedent("\n".join(block)) + "\n", "utf-8")
    assert yaml.safe_load(file.read_text("utf-8"))["gateway"].keys() <= set(GatewayConfig.__struct_fields__)
    assert not [line for line in check(file, environ={}) if "unknown" in line]


def named_settings(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w/.-])gateway\.([a-z_]+)\b(?!\.[a-z])", text))


def test_each_setting_of_the_gateway_that_a_page_or_a_file_names_exists() -> None:
    """In files for deployment anywhere, in pages where it stands as code by itself."""
    files = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    files += [ROOT / "compose.yaml", ROOT / "Dockerfile"]
    found = {path: named_settings(path.read_text("utf-8")) for path in files}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        found[page] = named_settings(
            " ".join(re.findall(r"`(gateway\.[a-z_]+)(?=[`:. ])", page.read_text("utf-8")))
        )
    assert sum(map(len, found.values())) > 20
    known = {*GatewayConfig.__struct_fields__}
    assert not {path.name: names - known for path, names in found.items() if names - known}
