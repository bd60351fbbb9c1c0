"""The gateway's section, the environment and the command line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moot.config import Secret, hash_token, load
from moot.config.cluster_config import ClusterConfig
from moot.config.gateway_config import (
    GatewayConfig,
    HttpConfig,
    JournalConfig,
    LogConfig,
    McpEndpointConfig,
    SmtpConfig,
    TlsConfig,
)
from moot.config.notification_config import NotificationsConfig, PushConfig, QuietHours, ReceiverConfig
from moot.config.oidc_config import IntrospectionConfig, OidcConfig, SignInRule
from moot.config.secrets.kept_secret import keys_of
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, loaded, written
from tests.rows import for_each_row

ONE_SPACE = "spaces: {lab: {participants: {alice: {tokens: [a], capabilities: [chat]}}}}\n"

EVERYTHING = """
    gateway:
      host: 0.0.0.0
      port: 9000
      data: kept
      admin_tokens: {root: {token_env: ROOT}, second: {token: s}}
      allowed_hosts: [Moot.example, moot.example:8443]
      allowed_origins: ["https://moot.example/"]
      allow_query_token: true
      max_minted_token_seconds: 41
      max_connections_per_address: 0
      max_connections: 2
      max_space_content_bytes: 47
      auto_create_spaces: true
      journal: {mode: strict, retain_segments: 18, retain_days: 19, log: false, witnesses: w,
                witness_for: [k], anchor: a}
      public_url: https://moot.example.org
      notifications: {receivers: {phone: {participant: ana, type: webhook, url_env: URL, secret_env: SIGN}},
                      push: {enabled: false, contact: "mailto:a@x", allowed_hosts: ["*"],
                             allow_private_addresses: true, after_seconds: 33, outcome_unknown: true,
                             max_seconds_since_sign_in: 3600}}
      cluster: {servers: [nats://n], name: c, gateway: g, replicas: 1, shards: 2, credentials_file: moot.yaml,
                serves: shared,
                tls_ca_file: moot.yaml, tls_certificate_file: moot.yaml, tls_key_file: moot.yaml,
                max_content_bytes: 48,
                heartbeat_seconds: 33, gone_seconds: 34,
                unavailable_seconds: 36, stale_seconds: 37,
                snapshot_inputs: 40, keep_log: true, addresses: [https://a.example]}
      tls: {certificate: c, key: k, client_ca: a, local_port: 7}
      smtp: {host: mail, port: 25, from: m@x, starttls: false, user: u, password_env: PW}
      log: {level: debug, format: json, file: moot.log}
      mcp: {server: alice, space: lab, path: /mcp/lab, max_people: 43, decision_seconds: 45}
      http: {inject: false, poll: false, admin: false, metrics: false, console: false}
"""


def differing(config: msgspec.Struct, default: msgspec.Struct, path: str = "") -> Iterator[tuple[str, bool]]:
    for name in config.__struct_fields__:
        value, usual = getattr(config, name), getattr(default, name)
        if isinstance(usual, msgspec.Struct):
            yield from differing(value, usual, f"{path}{name}.")
        else:
            yield f"{path}{name}", value != usual


def test_every_key_of_the_gateway_is_read(tmp_path: Path) -> None:
    environ = {"ROOT": "r", "PW": "hush", "URL": "https://example.org/in", "SIGN": "s" * 24}
    gateway = loaded(tmp_path, EVERYTHING + "\n" + " " * 4 + ONE_SPACE, **environ).gateway
    plain = GatewayConfig(
        smtp=SmtpConfig(host="", sender=""),
        tls=TlsConfig(certificate=Path(), key=Path()),
        cluster=ClusterConfig(servers=()),
    )
    # It excludes `cluster`; tests/config/test_oidc.py reads it.
    assert [name for name, differs in differing(gateway, plain) if not differs] == ["oidc"]
    assert gateway.admin_tokens == {"root": hash_token("r"), "second": hash_token("s")}
    assert gateway.smtp is not None
    assert gateway.smtp.password == Secret("hush")
    assert gateway.smtp.password.reveal() == "hush"


def test_no_mail_is_none_at_all(tmp_path: Path) -> None:
    assert loaded(tmp_path, "gateway: {smtp: null}\n" + ONE_SPACE).gateway.smtp is None


SECTIONS = [
    GatewayConfig,
    JournalConfig,
    SmtpConfig,
    TlsConfig,
    OidcConfig,
    SignInRule,
    IntrospectionConfig,
    McpEndpointConfig,
    LogConfig,
    HttpConfig,
    NotificationsConfig,
    PushConfig,
    QuietHours,
    ReceiverConfig,
]


@for_each_row("section", SECTIONS)
def test_every_setting_says_why_above_itself(section: type[msgspec.Struct]) -> None:
    """The reference page is written from these comments."""
    own = [each for each in section.__mro__ if each.__module__ == section.__module__]
    lines = "".join(map(inspect.getsource, own)).splitlines()
    for name in section.__struct_fields__:
        index = next(i for i, line in enumerate(lines) if line.startswith(f"    {name}: "))
        assert lines[index - 1].startswith("    # "), name


def test_without_a_section_the_defaults_hold(tmp_path: Path) -> None:
    gateway = loaded(tmp_path, ONE_SPACE).gateway
    assert gateway == GatewayConfig(data=tmp_path / ".moot")


def test_paths_in_a_file_are_taken_from_where_the_file_stands(tmp_path: Path) -> None:
    gateway = loaded(tmp_path, "gateway: {data: d, log: {file: logs/x}}\n" + ONE_SPACE).gateway
    assert gateway.data == tmp_path / "d"
    assert gateway.log.file == tmp_path / "logs/x"


@pytest.mark.parametrize(
    ("word", "mode"), [("on", "on"), ("off", "off"), ("strict", "strict"), ("{mode: off}", "off")]
)
def test_the_journal_is_one_word_or_a_section(tmp_path: Path, word: str, mode: str) -> None:
    """YAML reads a bare on as true."""
    assert loaded(tmp_path, f"gateway: {{journal: {word}}}\n" + ONE_SPACE).gateway.journal.mode == mode


@pytest.mark.parametrize(
    ("gateway", "fault"),
    [
        ("prot: 1", "gateway.prot: unknown key; did you mean port?"),
        ("frobnicate: 1", "gateway.frobnicate: unknown key; known are admin_tokens, "),
        ("port: '80'", "gateway.port: must be a whole number, not text"),
        ("port: 65536", "gateway.port: must be a whole number, at most 65535"),
        ("port: true", "gateway.port: must be a whole number, not true or false"),
        ("max_minted_token_seconds: 0", "gateway.max_minted_token_seconds: "),
        ("max_minted_token_seconds: .nan", "gateway.max_minted_token_seconds: "),
        ("max_minted_token_seconds: .inf", "gateway.max_minted_token_seconds: "),
        ("host: ''", "gateway.host: must be text of at least 1 character"),
        ("data: 3", "gateway.data: expected a path"),
        ("allowed_hosts: x", "gateway.allowed_hosts: must be a list, not text"),
        ("allowed_hosts: [x, 1]", "gateway.allowed_hosts[1]: must be text, not a whole number"),
        ("journal: loud", "gateway.journal: must be one of off, on, strict"),
        ("journal: {mode: loud}", "gateway.journal.mode: must be one of off, on, strict"),
        ("journal: {sync: 1}", "gateway.journal.sync: unknown key"),
        ("log: {level: trace}", "gateway.log.level: must be one of debug, error, info, warning"),
        ("log: []", "gateway.log: must be a mapping"),
        ("http: {injct: true}", "gateway.http.injct: unknown key; did you mean inject?"),
        ("smtp: {host: h}", "gateway.smtp.from: is missing"),
        ("smtp: {host: h, from: f, password: p}", "gateway.smtp.password: never in this file"),
        ("smtp: {host: h, from: f, password_env: PW}", "gateway.smtp.password_env: a password without"),
        ("smtp: {host: h, from: f, user: u, password_env: PW}", "the environment variable PW is not set"),
        ("admin_tokens: [x]", "gateway.admin_tokens: must be a mapping"),
        ("admin_tokens: {root: hunter2}", "gateway.admin_tokens.root: must be a mapping"),
        ("admin_tokens: {root: {token_env: NONE}}", "gateway.admin_tokens.root.token_env: the environment"),
        ("admin_tokens: {root: {token: a, token_env: B}}", "gateway.admin_tokens.root: has to hold"),
        (
            "admin_tokens: {root: {tokn: a}}",
            "gateway.admin_tokens.root.tokn: unknown key; did you mean token?",
        ),
        ("admin_tokens: {a b: {token: a}}", "gateway.admin_tokens.a b: a participant id has"),
        ("admin_tokens: {a: {token: x}, b: {token: x}}", "gateway.admin_tokens.b: the same token"),
        ("cluster: {servers: []}", "gateway.cluster.servers: must be a list of at least 1 item"),
        ("cluster: {servers: [n], name: a b}", "name: must be text of at most 64 letters, digits, - and _"),
        (
            "cluster: {servers: [n], addresses: [a.example]}",
            "gateway.cluster.addresses[0]: must be an address such as https://a.example:8080",
        ),
        ("1: 2", "gateway: the key 1 is not text"),
        ("port: 1, port: 2", "line 1, column 20: not valid YAML: a key stands twice"),
    ],
)
def test_a_mistake_names_its_path(tmp_path: Path, gateway: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, f"gateway: {{{gateway}}}\n{ONE_SPACE}")
    assert str(raised.value).startswith(f"{tmp_path / 'moot.yaml'}: ")
    assert fault in str(raised.value)
    assert "hunter2" not in str(raised.value)


# The environment and the command line


def test_the_environment_overrides_the_file_and_the_command_line_both(tmp_path: Path) -> None:
    path = written(tmp_path, "gateway: {port: 1, host: a, max_connections: 2}\n" + ONE_SPACE)
    environ = {"MOOT_GATEWAY__PORT": "9000", "MOOT_GATEWAY__HOST": "b", "PORT": "3"}
    assert load(path, environ=environ).gateway.port == 9000
    gateway = load(path, environ=environ, port=0, host="::1", data=tmp_path / "d").gateway
    assert (gateway.port, gateway.host, gateway.max_connections) == (0, "::1", 2)
    assert gateway.data == tmp_path / "d"


def test_data_on_the_command_line_is_taken_from_where_the_process_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, ONE_SPACE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load(path, environ=NO_ENVIRONMENT, data=Path("d")).gateway.data == tmp_path / "elsewhere" / "d"


def variables(struct: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(struct):
        inner = [t for t in (field.type, *getattr(field.type, "__args__", ())) if isinstance(t, type)]
        nested = [t for t in inner if issubclass(t, msgspec.Struct)]
        if nested and field.encode_name not in ("receivers", "oidc"):
            yield from variables(nested[0], f"{prefix}{field.encode_name.upper()}__")
        elif field.encode_name not in ("admin_tokens", "receivers", "oidc"):
            yield from (f"{prefix}{key.upper()}" for key in keys_of(field))


VALUES: dict[str, Any] = {
    "JOURNAL__LOG": "false",
    "JOURNAL__WITNESSES": "w",
    "JOURNAL__WITNESS_FOR": "[k]",
    "JOURNAL__ANCHOR": "a",
    "MCP__SERVER": "alice",
    "MCP__SPACE": "lab",
    "MCP__PATH": "/mcp/lab",
    "AUTO_CREATE_SPACES": "true",
    "ALLOWED_HOSTS": "[x]",
    "ALLOWED_ORIGINS": "[x]",
    "JOURNAL__MODE": "strict",
    "CLUSTER__KEEP_LOG": "true",
    "CLUSTER__SERVERS": "[nats://n]",
    "CLUSTER__SERVES": "shared",
    "CLUSTER__ADDRESSES": "[https://a.example]",
    "CLUSTER__NAME": "c",
    "CLUSTER__GATEWAY": "g",
    "CLUSTER__REPLICAS": "1",
    "CLUSTER__CREDENTIALS_FILE": "moot.yaml",
    "CLUSTER__TLS_CA_FILE": "moot.yaml",
    "CLUSTER__TLS_CERTIFICATE_FILE": "moot.yaml",
    "CLUSTER__TLS_KEY_FILE": "moot.yaml",
    "LOG__LEVEL": "debug",
    "LOG__FORMAT": "json",
    "SMTP__PASSWORD_ENV": "PW",
    "HOST": "h",
    "DATA": "d",
    "SMTP__HOST": "h",
    "TLS__CERTIFICATE": "c",
    "TLS__KEY": "k",
    "TLS__CLIENT_CA": "a",
    "SMTP__FROM": "f",
    "SMTP__USER": "u",
    "LOG__FILE": "f",
    "ALLOW_QUERY_TOKEN": "true",
    "SMTP__STARTTLS": "false",
    "PUBLIC_URL": "https://moot.example.org",
    "NOTIFICATIONS__PUSH__ENABLED": "false",
    "NOTIFICATIONS__PUSH__CONTACT": "mailto:a@x",
    "NOTIFICATIONS__PUSH__ALLOWED_HOSTS": "[x]",
    "NOTIFICATIONS__PUSH__ALLOW_PRIVATE_ADDRESSES": "true",
    "NOTIFICATIONS__PUSH__OUTCOME_UNKNOWN": "true",
} | {f"HTTP__{name}": "false" for name in ("INJECT", "POLL", "ADMIN", "METRICS", "CONSOLE")}


def test_every_setting_has_a_variable(tmp_path: Path) -> None:
    names = list(variables(GatewayConfig, ""))
    environ = {f"MOOT_GATEWAY__{name}": VALUES.get(name, "21") for name in names} | {"PW": "p"}
    environ["MOOT_GATEWAY__ADMIN_TOKENS__ROOT__TOKEN_ENV"] = "PW"
    phone = "{participant: ana, type: webhook, url_env: URL, secret_env: SIGN}"
    environ |= {"MOOT_GATEWAY__NOTIFICATIONS__RECEIVERS__PHONE": phone}
    environ |= {"URL": "https://example.org/in", "SIGN": "s" * 24}
    gateway = loaded(tmp_path, ONE_SPACE, **environ).gateway
    plain = GatewayConfig(
        smtp=SmtpConfig(host="", sender=""),
        tls=TlsConfig(certificate=Path(), key=Path()),
        cluster=ClusterConfig(servers=()),
    )
    # It excludes `cluster`; tests/config/test_oidc.py reads it.
    assert [name for name, differs in differing(gateway, plain) if not differs] == ["oidc"]


def test_a_variable_changes_one_value_of_a_section(tmp_path: Path) -> None:
    text = "gateway: {journal: {mode: off, retain_segments: 3}}\n" + ONE_SPACE
    journal = loaded(tmp_path, text, MOOT_GATEWAY__JOURNAL__MODE="strict").gateway.journal
    assert (journal.mode, journal.retain_segments) == ("strict", 3)
    text = "gateway: {journal: off}\n" + ONE_SPACE
    journal = loaded(tmp_path, text, MOOT_GATEWAY__JOURNAL__RETAIN_SEGMENTS="3").gateway.journal
    assert (journal.mode, journal.retain_segments) == ("off", 3)
    assert loaded(tmp_path, text, MOOT_GATEWAY__JOURNAL="on").gateway.journal.mode == "on"


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("MOOT_GATEWAY__PROT", "1", "MOOT_GATEWAY__PROT: no such setting; did you mean MOOT_GATEWAY__PORT?"),
        ("MOOT_GATEWAY__JOURNAL__MODUS", "1", "did you mean MOOT_GATEWAY__JOURNAL__MODE?"),
        ("MOOT_GATEWAY__PORT__X", "1", "MOOT_GATEWAY__PORT__X: no such setting"),
        ("MOOT_GATEWAY__", "1", "MOOT_GATEWAY__: no such setting"),
        ("MOOT_GATEWAY__PORT", "", "MOOT_GATEWAY__PORT: is empty"),
        (
            "MOOT_GATEWAY__PORT",
            "abc",
            "gateway.port: must be a whole number, not text (set by MOOT_GATEWAY__PORT)",
        ),
        ("MOOT_GATEWAY__PORT", "[", "MOOT_GATEWAY__PORT: line "),
        ("MOOT_GATEWAY__JOURNAL__MODE", "x", "(set by MOOT_GATEWAY__JOURNAL__MODE)"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(
    tmp_path: Path, variable: str, value: str, fault: str
) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, ONE_SPACE, **{variable: value})
    assert fault in str(raised.value)


def test_a_mistake_on_the_command_line_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gateway.port: .* \(set by --port\)"):
        load(written(tmp_path, ONE_SPACE), environ=NO_ENVIRONMENT, port=70_000)


def test_a_variable_with_one_underscore_too_few_is_noted(tmp_path: Path) -> None:
    notes = loaded(tmp_path, ONE_SPACE, MOOT_GATEWAY_PORT="1", MOOT_ADMIN_TOKEN="x").notes
    assert notes == (
        "MOOT_GATEWAY_PORT: not read; settings are named MOOT_GATEWAY__NAME, with two underscores",
    )


# Host and Origin (D-84)


def test_by_default_only_this_machine_and_the_host_itself_are_answered() -> None:
    assert GatewayConfig().hosts(8080) == {"localhost:8080", "127.0.0.1:8080", "[::1]:8080"}
    assert GatewayConfig(host="0.0.0.0").hosts(8080) == GatewayConfig().hosts(8080)  # noqa: S104
    assert GatewayConfig(host="::").hosts(8080) == GatewayConfig().hosts(8080)
    assert "moot.example:81" in GatewayConfig(host="Moot.example").hosts(81)
    assert "10.0.0.5:81" in GatewayConfig(host="10.0.0.5").hosts(81)
    assert "[fe80::1]:81" in GatewayConfig(host="fe80::1").hosts(81)
    assert GatewayConfig().origins(8080) == {
        "http://localhost:8080",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
    }


def test_the_port_of_http_is_left_out_as_browsers_leave_it_out() -> None:
    assert {"localhost", "localhost:80"} <= GatewayConfig().hosts(80)
    assert "http://localhost" in GatewayConfig().origins(80)


def test_listed_hosts_and_origins_stand_in_place_of_the_default() -> None:
    gateway = GatewayConfig(
        allowed_hosts=("Moot.example", "other:8443", "[::1]"), allowed_origins=("https://Moot.example/",)
    )
    assert gateway.hosts(80) == {"moot.example", "moot.example:80", "other:8443", "[::1]", "[::1]:80"}
    assert gateway.origins(80) == {"https://moot.example"}
    assert GatewayConfig(allowed_hosts=()).hosts(80) == frozenset()


def test_localhost_among_the_hosts_stands_for_the_loopback_addresses_and_for_nothing_else() -> None:
    """Commands in the folder and members of `moot up` say 127.0.0.1."""
    names = {"localhost", "127.0.0.1", "[::1]"}
    listed = GatewayConfig(allowed_hosts=("moot.example", "LocalHost")).hosts(8080)
    assert listed == {
        "moot.example", "moot.example:8080", *names, *(f"{name}:8080" for name in names)
    }  # fmt: skip
    assert GatewayConfig(allowed_hosts=("localhost:9000",)).hosts(8080) == {f"{name}:9000" for name in names}
    for other in ("127.0.0.1", "localhost.example", "notlocalhost", "example:localhost"):
        assert GatewayConfig(allowed_hosts=(other,)).hosts(80) == {other, f"{other}:80"}


def test_in_a_cluster_the_names_and_pages_of_all_gateways_are_answered() -> None:
    cluster = ClusterConfig(
        servers=("nats://n",), addresses=("https://A.example:443/moot", "http://b.example:8081")
    )
    gateway = GatewayConfig(cluster=cluster, allowed_origins=())
    assert gateway.hosts(8080) == GatewayConfig().hosts(8080) | {"a.example", "b.example:8081"}
    assert gateway.origins(8080) == {"https://a.example", "http://b.example:8081"}


@pytest.mark.parametrize("address", ["a.example", "ftp://a", "https://u:p@a", "https://a?b", "https://a b"])
def test_an_address_of_a_gateway_is_one_that_browsers_open(tmp_path: Path, address: str) -> None:
    text = f"gateway: {{cluster: {{servers: [nats://n], addresses: ['{address}']}}}}\nspaces: {{lab: {{}}}}\n"
    with pytest.raises(UsageError, match=r"gateway\.cluster\.addresses"):
        loaded(tmp_path, text)


def test_gateways_that_share_have_sixteen_shards_and_more_snapshots_unless_it_is_said(tmp_path: Path) -> None:
    def cluster_of(given: str) -> ClusterConfig:
        text = f"gateway: {{cluster: {{servers: [nats://n]{given}}}}}\nspaces: {{lab: {{}}}}\n"
        cluster = loaded(tmp_path, text).gateway.cluster
        assert cluster is not None
        return cluster

    found = [cluster_of(each) for each in ("", ", serves: all", ", serves: shared")]
    assert [(each.shards, each.snapshot_inputs) for each in found] == [(4, 20_000)] * 2 + [(16, 2_500)]
    assert cluster_of(", serves: shared, shards: 5").shards == 5
    # The first one has no spaces.
    with pytest.raises(UsageError, match=r"gateway\.cluster\.shards: 2 or more"):
        cluster_of(", serves: shared, shards: 1")


def test_the_key_to_the_log_of_a_cluster_is_for_its_owner_alone(tmp_path: Path) -> None:
    credentials = tmp_path / "moot.creds"
    credentials.touch(mode=0o600)
    text = "gateway: {cluster: {servers: [nats://n], credentials_file: moot.creds}}\nspaces: {lab: {}}\n"
    assert loaded(tmp_path, text).gateway.cluster is not None
    credentials.chmod(0o644)
    with pytest.raises(UsageError, match=r"gateway\.cluster\.credentials_file: others may read or write"):
        loaded(tmp_path, text)
    credentials.unlink()
    with pytest.raises(UsageError, match=r"moot\.creds is not there"):
        loaded(tmp_path, text)
