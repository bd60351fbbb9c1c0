"""Who reads the wall clock, and why: what lasts a while is measured by a clock that nobody sets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[1] / "src" / "moot"
_WALL: Final = re.compile(r"\btime\.time\b|\bdatetime\.now\(|\bfrom time import[^\n]*\btime\b")

STAMP: Final = "a time for people to read"
SIGNED: Final = "XProtocol: creation, expiry, delegation and revocation are times that others signed"
AGO: Final = "how long ago, of a time that somebody wrote"
HEADER: Final = "dates in headers of HTTP and mail"
FILES: Final = {
    "participant/decisions/proposal_list.py": "until a gateway tells its time",
    "evidence/log_keys.py": "until when a key signed",
    "gateway/evidence/cluster_log.py": "the name of a log of a space from before 0.3",
    "gateway/evidence/space_log.py": "the name of a log that begins anew",
    "gateway/evidence/witness_client.py": "when a checkpoint was anchored",
    "gateway/evidence/witness_service.py": "the time of a cosignature",
    "agents/a2a/published_card.py": HEADER,
    "agents/model/model.py": HEADER,
    "agents/model/question_inbox.py": "how far back the gateway is asked for questions that were missed",
    "agents/review/reviewer.py": "when people decided, for the count of a day",
    "agents/model/spending_file.py": "how long ago it was spent, if the machine was restarted since",
    "chat/chat_service.py": "platforms say by the wall clock when something was done",
    "chat/chat_settings.py": "until when a binding is valid, kept for the next start",
    "chat/slack_requests.py": "Slack says by the wall clock when it signed a request",
    "chat/telegram.py": "a press has no time: it is as old as its update",
    "cli/journal/journal_erasure.py": STAMP,
    "cli/rules/file_commands.py": "hours and dates of a rule",
    "cli/rules/compare_commands.py": "the times at which rules are compared, and until when a journal counts",
    "gateway/notifications/channels.py": HEADER,
    "gateway/notifications/sender.py": "quiet hours are times of day",
    "gateway/notifications/push/channel.py": "push services judge until when a signature is valid",
    "gateway/notifications/push/device_owners.py": "how long ago an account was here, also over a restart",
    "gateway/http/push_routes.py": STAMP,
    "gateway/http/passkey_routes.py": "until when a ticket is good, at every gateway of a cluster",
    "gateway/hosting/content_store.py": "how old a file is that a killed gateway left half written",
    "gateway/hosting/own_connections.py": STAMP,
    "gateway/cluster/nats/log_writer.py": "what NATS says of the time is held against it (0113)",
    "conformance/live_driver.py": STAMP,
    "gateway/space_factory.py": "when a space was archived or deleted",
    "gateway/http/admin_routes.py": "tokens say by the wall clock when they were issued",
    "gateway/sign_in/provider_check.py": "tokens say by the wall clock when they were issued and expire",
    "gateway/sign_in/sign_in_service.py": "tokens say by the wall clock when they were issued and expire",
    "net/server_tls.py": "certificates expire by the wall clock",
    "trust/rules/rule_store.py": STAMP,
    "bridges/server/overlay_previews.py": STAMP,
    "bridges/space/kept_calls.py": "until when a result is written down for the next run, and when another "
    "process made a proposal",
    "bridges/space/pending_calls.py": "how far back the gateway is asked, with a margin of a minute",
    "xprotocol/adapter/adapter.py": SIGNED,
    "xprotocol/adapter/discovery/announcer.py": SIGNED,
    "xprotocol/adapter/inbound/operation_runner.py": SIGNED,
    "xprotocol/adapter/inbound/reply_publisher.py": SIGNED,
    "xprotocol/adapter/inbound/request_handler.py": SIGNED,
    "xprotocol/adapter/inbound/resource_subscriptions.py": SIGNED,
    "xprotocol/adapter/outbound/followed_resources.py": SIGNED,
    "xprotocol/adapter/outbound/outbound_source.py": STAMP,
    "xprotocol/adapter/telemetry/audit_log.py": STAMP,
    "xprotocol/adapter/telemetry/event_log.py": STAMP,
    "cli/adapter/keygen.py": STAMP,
    "cli/adapter/register.py": SIGNED,
    "cli/adapter/revoke.py": SIGNED,
    "cli/adapter/trust_chain.py": SIGNED,
    "cli/adapter/validate.py": SIGNED,
    "cli/proposal/explain.py": AGO,
    "cli/proposal/history.py": AGO,
    "cli/rules/run.py": AGO,
    "cli/options/time_argument.py": AGO,
    "cli/client/device_sign_in.py": "until when a token is valid, kept for later commands",
    "cli/client/browser_sign_in.py": "until when a token is valid, kept for later commands",
    "xprotocol/endpoint/endpoint_caller.py": SIGNED,
    "xprotocol/endpoint/event_listener.py": SIGNED,
    "xprotocol/endpoint/known_endpoints.py": STAMP,
    "xprotocol/endpoint/relay_session.py": SIGNED,
    "gateway/http/http_replies.py": STAMP,
    "gateway/hosting/space_repair.py": STAMP,
    "gateway/websocket_handler.py": STAMP,
    "mcp/downstream/backend.py": STAMP,
    "mcp/tool_pins.py": STAMP,
    "metrics/process.py": STAMP,
    "oauth/exchanged_credential.py": "until when a token is valid",
    "oauth/server_credential.py": "until when a token is valid, kept for the next start",
    "oauth/token_endpoint.py": "until when a token is valid, kept for the next start",
    "participant/member_session.py": "asked of the gateway, with a margin of a minute",
    "xprotocol/relay/relay_server.py": SIGNED,
    "resilience/steady_clock.py": "read once, at the start",
    "xprotocol/event_store/event_store.py": SIGNED,
    "gateway/sign_in/token_list.py": "tokens say by the wall clock when they end",
    "gateway/cluster/nats/shared_content.py": "NATS says by the wall clock when a value was kept",
    "store/journal.py": "the default of the clock that a test sets, for `file_journal`",
    "store/file_journal.py": "of the record that stands for lost ones; replay and restart pass over it",
    "operations/aisvs/deployment.py": "how old a file with a token is",
    "trust/approver/approver.py": "hours and dates of a rule; its limits go by another clock",
    "trust/approver/approver_status.py": "hours and dates of a rule",
    "operations/grant_scope.py": "what is granted for today ends at a person's midnight",
    "operations/text/origin_text.py": AGO,
    "tui/dialogs.py": "what is endorsed ends at a person's midnight",
    "tui/proposal_lines.py": AGO,
}


def test_only_files_that_have_a_reason_read_the_wall_clock() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if _WALL.search(path.read_text("utf-8"))
    }
    unknown = sorted(found - FILES.keys())
    assert unknown == [], "measure durations by time.monotonic(), or give the file a reason here"


def test_the_compiled_parts_read_no_wall_clock() -> None:
    for path in SOURCE.rglob("*.pyx"):
        assert "CLOCK_REALTIME" not in path.read_text("utf-8"), path.name
