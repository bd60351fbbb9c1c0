"""Who talks without TLS reads no authorities, and trusts nobody who speaks TLS all the same."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from moot.agents.model.agent_settings import ModelSettings
from moot.agents.model.model import Model
from moot.net.outbound import verification_for


def test_an_address_without_tls_gets_a_context_that_trusts_nobody() -> None:
    context = verification_for("HTTP://127.0.0.1:8080/v1")
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.get_ca_certs() == []
    assert context.cert_store_stats()["x509_ca"] == 0


def test_an_address_with_tls_is_checked_as_ever() -> None:
    assert verification_for("https://gateway.example") is True


async def test_a_model_without_tls_reads_no_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    async with Model(ModelSettings(base_url="http://127.0.0.1:9/v1", model="m")):
        pass
    with pytest.raises(FileNotFoundError):
        Model(ModelSettings(base_url="https://127.0.0.1:9/v1", model="m"))
