"""`xprotocol-adapter keygen`: creates a new key file (XP 6.2)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from moot.cli.adapter.options import command, report
from moot.cli.options.shared_options import add_json

_EXAMPLES = """\
  xprotocol-adapter keygen                                  into ~/.xprotocol/adapter.key
  xprotocol-adapter keygen --output ~/.xprotocol/org.key    the key of an organisation or department
  xprotocol-adapter keygen --rotate                         another encryption key; who it is stays
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "keygen",
        run_keygen,
        help="generate a keypair",
        description="Generates an Ed25519 key for signing and an X25519 key for encryption, writes both to a "
        "file that only you can read, and prints the public keys. A lost key cannot be recovered, "
        "so an existing file is only overwritten with --force. `start` creates the key file if "
        "there is none. With --rotate, an existing file gets a new X25519 key; the Ed25519 key, by which "
        "others know the adapter, stays, and the older X25519 keys still open what was encrypted before. "
        "A running adapter uses it after a restart.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("--output", type=Path, metavar="FILE", help="default ~/.xprotocol/adapter.key")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--force", action="store_true", help="overwrite the file; its key is lost for good")
    chosen.add_argument(
        "--rotate", action="store_true", help="give an existing key file a new encryption key"
    )
    add_json(parser)


def run_keygen(chosen: argparse.Namespace) -> int:
    from moot.xprotocol.adapter.config.adapter_settings import KEY_FILE
    from moot.xprotocol.identity import keyfile
    from moot.xprotocol.identity.keys import Identity

    path = (chosen.output or KEY_FILE).expanduser()
    if chosen.rotate:
        identity = keyfile.rotate(path, int(time.time()))
    else:
        identity = Identity.generate()
        keyfile.create(path, identity, force=chosen.force)
    value: dict[str, Any] = {
        "ok": True,
        "file": str(path),
        "public_key": identity.key.text,
        "encryption_key": identity.enc_key.text,
    }
    lines = [
        f"key file        {path} (mode 0600; keep a backup in a safe place)",
        f"public key      {identity.key.text}",
        f"encryption key  {identity.enc_key.text}",
    ]
    if chosen.rotate:
        value["older_encryption_keys"] = len(identity.retired)
        lines.append(f"older ones      {len(identity.retired)}, which open what was encrypted before")
        lines.append("A running adapter uses the new one after a restart.")
    return report(chosen, value, lines)
