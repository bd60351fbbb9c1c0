"""The `gateway.notifications` section: who is told outside of Moot that a proposal waits, and how.

The reference page is written from this file: the comment above a field is what it says there. Addresses and
secrets never stand in it: a setting names the file or the environment variable that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from moot.config.secret import Secret

ReceiverType = Literal["webhook", "ntfy", "slack", "email"]

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Delay = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
_Text = Annotated[str, msgspec.Meta(min_length=1)]


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """`quiet_hours` of a receiver: nothing is sent; afterwards, what is still open is one message."""

    # When they begin, by the clock in `time_zone`, as "22:00".
    start: str = msgspec.field(name="from")
    # When they end, as "07:00".
    end: str = msgspec.field(name="to")
    # Where that clock is, as Europe/Berlin.
    time_zone: str


class ReceiverConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.notifications.receivers.NAME`: one place to which one participant's notifications go."""

    # Whose: it is told what it may decide, and neither its own proposals nor what it rejected.
    participant: _Text
    # How: `webhook` (signed JSON), `ntfy`, `slack` (an incoming webhook) or `email` (by `gateway.smtp`).
    type: ReceiverType
    # The environment variable that holds the URL. The URL never stands in this file: it often is a secret.
    url_env: str | None = None
    # Or the file that holds it, readable by its owner alone.
    url_file: Path | None = None
    # Webhook: the environment variable that holds the secret with which messages are signed.
    secret_env: str | None = None
    # Or the file that holds it, readable by its owner alone.
    secret_file: Path | None = None
    # ntfy: the environment variable that holds an access token, for a topic that needs one.
    token_env: str | None = None
    # Or the file that holds it, readable by its owner alone.
    token_file: Path | None = None
    # E-mail: to whom.
    address: str | None = None
    # Only proposals in these spaces; by default in all in which the participant is a member.
    spaces: tuple[str, ...] | None = None
    # What is decided within this time is not told: whoever is at the console has seen it.
    after_seconds: _Delay = 30
    # When nothing is sent: {from: "22:00", to: "07:00", time_zone: Europe/Berlin}.
    quiet_hours: QuietHours | None = None
    # Also tell when nobody knows what came of an approved call.
    outcome_unknown: bool = False
    # Also send the arguments of the call, which may be confidential, to whoever runs the receiver.
    include_arguments: bool = False
    # The URL that was found there; not a setting.
    url: Secret | None = None
    # The access token that was found there; not a setting.
    token: Secret | None = None
    # The secret that was found there; not a setting.
    secret: Secret | None = None


class PushConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.notifications.push`: Web Push to browsers in which people turn notifications on."""

    # Off: nobody can turn notifications on, and those that are on are not sent.
    enabled: bool = True
    # Whom a push service may ask: mailto:ADDRESS or an https URL. By default `gateway.public_url`.
    contact: str | None = None
    # Push services to which messages go: those of Chrome, Firefox, Edge and Safari. "*": every public host.
    allowed_hosts: tuple[str, ...] = (
        "fcm.googleapis.com",
        "*.push.services.mozilla.com",
        "*.notify.windows.com",
        "*.push.apple.com",
    )
    # For a push service in your own network. Lets members make the gateway connect to machines there.
    allow_private_addresses: bool = False
    # What is decided within this time is not told: whoever is at the console has seen it.
    after_seconds: _Delay = 30
    # Also tell when nobody knows what came of an approved call.
    outcome_unknown: bool = False
    # Devices of all together. Each looks for something to tell every two seconds.
    max_devices: _Positive = 200
    # Devices of who signs in with a provider (`gateway.oidc`) or a passkey are told for so long after they
    # were last seen here, and then that this has ended. 0: they cannot turn notifications on.
    max_seconds_since_sign_in: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 604_800


class NotificationsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.notifications`: messages out of the gateway. Without receivers none are sent."""

    # Receiver → its settings, as described below.
    receivers: Mapping[str, ReceiverConfig] = msgspec.field(default_factory=dict)
    # Web Push, as described below.
    push: PushConfig = PushConfig()
