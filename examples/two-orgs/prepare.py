"""Makes both organisations' keys, and the configuration of each one's adapter with the other's key in it.

    python3 prepare.py [--relay ws://127.0.0.1:8764]

Between real organisations each makes its own, and they tell each other their public keys.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent

ACME = """\
identity: {{key_file: adapter.key, display_name: Acme}}
relay: {{urls: ["{relay}"]}}
xprotocol_sources:
  # Whoever else says so, only this key is Beta.
  - name: beta
    key: {beta}
    relay: "{relay}"
    # Somebody over there may have to decide first.
    call_timeout_seconds: 120
    allow_private_addresses: true
mcp_server: {{transport: stdio}}
discovery: {{well_known_port: 0}}
logging: {{level: warn, format: text}}
"""

BETA = """\
identity: {{key_file: adapter.key, display_name: Beta's warehouse}}
relay: {{urls: ["{relay}"]}}
mcp_sources:
  # Our own space, as an MCP server: `moot mcp` is the member `acme` there, with that member's rights.
  - name: warehouse
    transport: stdio
    command: moot
    args: [mcp, --as, acme, --config, "{folder}/moot.yaml", --decision-seconds, "100", --names-file, none]
    xprotocol_namespace: org.beta.warehouse
    tool_allowlist: [get_stock, create_reservation, moot_status]
access:
  # Acme. What it may ask for at all; what it may do without asking is said in moot.yaml.
  {acme}: [org.beta.warehouse.*]
mcp_server: {{transport: none}}
discovery: {{well_known_port: 0}}
logging: {{level: warn, format: text}}
limits: {{upstream_call_seconds: 120}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--relay", default="ws://127.0.0.1:8764", help="where both meet")
    relay = parser.parse_args().relay
    keys = {name: _key(HERE / name / "adapter.key") for name in ("acme", "beta")}
    for name, text in (("acme", ACME), ("beta", BETA)):
        (HERE / name / "adapter.yml").write_text(
            text.format(relay=relay, folder=HERE / name, **keys), "utf-8"
        )
        print(f"{name}: {keys[name]}")  # noqa: T201


def _key(file: Path) -> str:
    command = ["xprotocol-adapter", "keygen", "--output", str(file), "--force", "--json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return str(json.loads(said.stdout)["public_key"])


if __name__ == "__main__":
    main()
