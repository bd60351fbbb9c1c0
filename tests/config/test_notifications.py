"""`gateway.notifications`: read strictly, secrets from files and variables, and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from moot.config import check
from moot.errors import UsageError
from tests.config.files import NO_ENVIRONMENT, loaded, written

SPACE = "spaces: {lab: {participants: {ana: {tokens: [a], capabilities: [chat]}}}}\n"
ENVIRON = {"URL": "https://hooks.example.org/s3cr3t", "SIGN": "s3cr3t-of-twenty-four-and-more"}
PHONE = "participant: ana, type: webhook, url_env: URL, secret_env: SIGN"


def receivers(text: str, *, gateway: str = "public_url: https://moot.example.org") -> str:
    return f"gateway: {{{gateway}, notifications: {{receivers: {text}}}}}\n{SPACE}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{phone: {}}", "receivers.phone.participant: is missing"),
        ("{phone: {participant: ana}}", "receivers.phone.type: is missing"),
        ("{phone: {participant: ana, type: pigeon}}", "receivers.phone.type: must be one of "),
        ("{phone: {participant: a b, type: webhook}}", "receivers.phone.participant: a participant id has"),
        ("{phone: {participant: ana, type: webhook}}", "receivers.phone: url_file or url_env is missing"),
        ("{phone: {participant: ana, type: webhook, url_env: URL}}", "secret_file or secret_env is missing"),
        ("{phone: {participant: ana, type: webhook, url: https://s3cr3t}}", "phone.url: never in this file"),
        ("{phone: {participant: ana, type: webhook, secret: s3cr3t}}", "phone.secret: never in this file"),
        (
            "{phone: {participant: ana, type: webhook, url_env: NONE}}",
            "phone.url_env: the environment variable",
        ),
        ("{phone: {participant: ana, type: webhook, url_env: A, url_file: b}}", "stands beside url_file"),
        ("{phone: {participant: ana, type: webhook, url_file: none}}", "phone.url_file: the file "),
        ("{phone: {participant: ana, type: slack, url_env: PLAIN}}", "phone.url: what is there is no URL"),
        ("{phone: {participant: ana, type: slack, url_env: SPACED}}", "phone.url: what is there is no URL"),
        (
            "{phone: {participant: ana, type: slack, url_env: NOHOST}}",
            "phone.url: the URL that is there names",
        ),
        ("{phone: {participant: ana, type: slack, url_env: PORT}}", "phone.url: what is there is no URL"),
        (
            "{phone: {participant: ana, type: slack, url_env: USER}}",
            "phone.url: the URL that is there holds",
        ),
        (
            "{phone: {participant: ana, type: webhook, url_env: URL, secret_env: SHORT}}",
            "phone.secret: has 24",
        ),
        (
            "{phone: {participant: ana, type: webhook, url_env: URL, secret_env: BAD64}}",
            "phone.secret: behind",
        ),
        (f"{{phone: {{{PHONE}, after: 3}}}}", "phone.after: unknown key; did you mean after_seconds?"),
        (f"{{phone: {{{PHONE}, after_seconds: -1}}}}", "phone.after_seconds: "),
        ("{phone: {participant: ana, type: ntfy, url_env: URL, secret_env: SIGN}}", "phone: secret has no"),
        (
            "{phone: {participant: ana, type: slack, url_env: URL, token_env: SIGN}}",
            "phone: token has no meaning",
        ),
        ("{phone: {participant: ana, type: ntfy, url_env: NOTOPIC}}", "phone.url: ends with the topic"),
        ("{phone: {participant: ana, type: ntfy, url_env: ODDTOPIC}}", "phone.url: ends with the topic"),
        (
            "{phone: {participant: ana, type: ntfy, url_env: URL, token_env: TWO}}",
            "phone.token: has 1 to 1024",
        ),
        ("{phone: {participant: ana, type: email}}", "phone: address is missing: to whom"),
        (
            "{phone: {participant: ana, type: email, address: 'a@x, b@x'}}",
            "phone.address: must be one e-mail",
        ),
        ('{phone: {participant: ana, type: email, address: "a@x\\nBcc: b@x"}}', "phone.address: must be one"),
        ("{phone: {participant: ana, type: email, address: a@x}}", "phone.type: e-mail goes out through"),
        (
            f"{{phone: {{{PHONE}, quiet_hours: {{from: '22:00', to: '7'}}}}}}",
            "quiet_hours.to: must be a time",
        ),
        (
            f"{{phone: {{{PHONE}, quiet_hours: {{from: 24:00, to: '7:00'}}}}}}",
            "quiet_hours.from: must be a time",
        ),
        (
            f"{{phone: {{{PHONE}, quiet_hours: {{from: '1:00', to: '2:00'}}}}}}",
            "quiet_hours.time_zone: is missing",
        ),
        (
            f"{{phone: {{{PHONE}, quiet_hours: {{from: '1:00', to: '01:00', time_zone: UTC}}}}}}",
            "quiet_hours: from and to are the same time",
        ),
        (
            f"{{phone: {{{PHONE}, quiet_hours: {{from: '1:00', to: '2:00', time_zone: ../Mars}}}}}}",
            "quiet_hours.time_zone: no such time zone",
        ),
        (f"{{../phone: {{{PHONE}}}}}", "receivers.../phone: a receiver's name has"),
    ],
)
def test_a_mistake_names_its_path_and_shows_no_secret(tmp_path: Path, text: str, fault: str) -> None:
    environ = ENVIRON | {
        "PLAIN": "s3cr3t",
        "SPACED": "https://example.org/s3cr3t HTTP/1.1",
        "NOHOST": "https:///s3cr3t",
        "PORT": "https://example.org:s3cr3t/",
        "USER": "https://me:s3cr3t@example.org/",
        "SHORT": "s3cr3t",
        "NOTOPIC": "https://ntfy.example.org/s3cr3t/",
        "ODDTOPIC": "https://ntfy.example.org/s3cr3t?x=y",
        "TWO": "s3cr3t s3cr3t",
        "BAD64": "whsec_s3cr3t-s3cr3t-s3cr3t-s3cr3t!",
    }
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, receivers(text), **environ)
    assert fault in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "url", ["moot.example.org", "https://a/#x", "https://a/?b", "https://a|b", "ftp://a"]
)
def test_a_public_url_is_one_that_links_can_begin_with(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match=r"gateway\.public_url: must be a URL"):
        loaded(tmp_path, f"gateway: {{public_url: '{url}'}}\n{SPACE}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("contact: maria", "push.contact: must be mailto:ADDRESS or an https URL"),
        ("contact: http://example.org", "push.contact: must be mailto:ADDRESS"),
        ("allowed_hosts: ['https://push.example.org']", "'https://push.example.org' is no host"),
        ("allowed_hosts: ['*.*.example.org']", "'*.*.example.org' is no host"),
        ("after_seconds: -1", "push.after_seconds: must be a number, at least 0"),
        ("enabled: sometimes", "push.enabled: must be true or false"),
        ("keys: {}", "push.keys: "),
    ],
)
def test_settings_of_web_push_are_read_strictly(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(UsageError) as raised:
        loaded(tmp_path, f"gateway: {{notifications: {{push: {{{text}}}}}}}\n{SPACE}")
    assert fault in str(raised.value)


def test_times_of_day_need_no_quotes(tmp_path: Path) -> None:
    """YAML reads a bare 22:00 as the number 1320."""
    quiet = "quiet_hours: {from: 22:00, to: 07:30, time_zone: Europe/Berlin}"
    found = loaded(tmp_path, receivers(f"{{phone: {{{PHONE}, {quiet}}}}}"), **ENVIRON)
    hours = found.gateway.notifications.receivers["phone"].quiet_hours
    assert hours is not None
    assert (hours.start, hours.end, hours.time_zone) == ("22:00", "07:30", "Europe/Berlin")


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hook.url").write_text("https://example.org/s3cr3t\n")
    (tmp_path / "hook.url").chmod(0o640)
    text = receivers("{phone: {participant: ana, type: webhook, url_file: hook.url, secret_env: SIGN}}")
    with pytest.raises(UsageError, match=r"url_file: others may read the file .*; run chmod 600 on it"):
        loaded(tmp_path, text, **ENVIRON)
    (tmp_path / "hook.url").chmod(0o600)
    receiver = loaded(tmp_path, text, **ENVIRON).gateway.notifications.receivers["phone"]
    assert receiver.url is not None
    assert receiver.url.reveal() == "https://example.org/s3cr3t"
    assert "s3cr3t" not in repr(receiver)


def test_what_is_perhaps_not_meant_is_noted(tmp_path: Path) -> None:
    bob = PHONE.replace("ana", "bob")
    text = receivers(f"{{phone: {{{bob}, spaces: [lab, attic]}}}}", gateway="port: 0")
    environ = ENVIRON | {"URL": "http://hooks.example.org/s3cr3t"}
    lines = "\n".join(check(written(tmp_path, text), environ=environ))
    assert "bob is notified by webhook (phone)" in lines
    assert "note: gateway.public_url: is not set, so notifications have no link" in lines
    assert "receivers.phone.spaces: there is no space attic" in lines
    assert "receivers.phone.participant: none of its spaces names bob" in lines
    assert "receivers.phone: its URL begins with http, so notifications can be read on the way" in lines
    assert "s3cr3t" not in lines
    assert "hooks" not in lines


def test_who_wants_none_is_told_nothing_about_them(tmp_path: Path) -> None:
    lines = "\n".join(check(written(tmp_path, SPACE), environ=NO_ENVIRONMENT))
    assert "public_url" not in lines
