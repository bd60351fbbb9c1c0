"""`xprotocol-adapter keygen`: creates a new key file (XP 6.2)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from moot.cli.adapter.options import add_json, command, print_json

_EXAMPLES = """\
  xprotocol-adapter keygen                                  into ~/.xprotocol/adapter.key
  xprotocol-adapter keygen --output ~/.xprotocol/org.key    the key of an organisation or department
"""


def add_command(commands: Any) -> None:
    parser = command(
        commands,
        "keygen",
        run,
        help="generate a keypair",
        description="Generates an Ed25519 key for signing and an X25519 key for encryption, writes both to a "
        "file that only you can read, and prints the public keys. A lost key cannot be recovered, "
        "so an existing file is only overwritten with --force. `start` creates the key file if "
        "there is none.",
        examples=_EXAMPLES,
    )
    add = parser.add_argument
    add("--output", type=Path, metavar="FILE", help="default ~/.xprotocol/adapter.key")
    add("--force", action="store_true", help="overwrite the file; its key is lost for good")
    add_json(parser, "the public keys and the file as one JSON object")


def run(chosen: argparse.Namespace) -> int:
    from moot.adapter.config.adapter_settings import KEY_FILE
    from moot.identity import keyfile
    from moot.identity.keys import Identity

    path = (chosen.output or KEY_FILE).expanduser()
    identity = Identity.generate()
    keyfile.create(path, identity, force=chosen.force)
    if chosen.json:
        print_json(
            {
                "ok": True,
                "file": str(path),
                "public_key": identity.key.text,
                "encryption_key": identity.enc_key.text,
            }
        )
    else:
        print(f"key file        {path} (mode 0600; keep a backup in a safe place)")
        print(f"public key      {identity.key.text}")
        print(f"encryption key  {identity.enc_key.text}")
    return 0
