"""`--tls-certificate` and `--tls-key`, for the commands that listen."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from moot.errors import UsageError

if TYPE_CHECKING:
    from moot.net.server_tls import TlsFiles


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tls-certificate", type=Path, metavar="FILE", help="speak TLS with this certificate, in PEM")
    add("--tls-key", type=Path, metavar="FILE", help="its private key, in PEM, for this user alone")


def tls_files_of(options: argparse.Namespace) -> TlsFiles | None:
    """The certificate and key that were named, both or none; raises UsageError."""
    from moot.net.server_tls import TlsFiles

    certificate, key = options.tls_certificate, options.tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-certificate and --tls-key belong together: give both")
    return TlsFiles(certificate=certificate, key=key, setting="--tls")


def warn_without_tls(where: str) -> None:
    """Tell whoever starts a service that others reach that it can be listened to."""
    print(
        f"WARNING: {where} is reached from other machines, and there is no TLS: tokens and all messages can"
        " be read and changed on the way. Give --tls-certificate and --tls-key, or put a proxy with TLS in"
        " front",
        file=sys.stderr,
        flush=True,
    )
