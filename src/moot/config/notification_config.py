"""The `gateway.notifications` section: who is told outside of Moot that a proposal waits, and how.

The reference page is written from this file: the comment above a field is what it says there. Addresses and
secrets never stand in it: a setting names the file or the environment variable that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from moot.config.secrets.kept_secret import InFileOrEnvironment

ReceiverType = Literal["webhook", "ntfy", "slack", "email"]

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


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What receivers and browsers are told of."""

    # What is decided within this time is not told: whoever is at the console has seen it.
    after_seconds: _Delay = 30
    # Also tell when nobody knows what came of an approved call.
    outcome_unknown: bool = False


class ReceiverConfig(NotificationSettings, frozen=True, kw_only=True):
    """`gateway.notifications.receivers.NAME`: one place to which one participant's notifications go."""

    # Whose: it is told what it may decide, and neither its own proposals nor what it rejected.
    participant: _Text
    # How: `webhook` (signed JSON), `ntfy`, `slack` (an incoming webhook) or `email` (by `gateway.smtp`).
    type: ReceiverType
    # A URL often is a secret, so this names the file of its owner alone, or the variable, that holds it.
    url: InFileOrEnvironment | None = None
    # Webhook: what holds the secret with which messages are signed, likewise.
    secret: InFileOrEnvironment | None = None
    # ntfy: what holds an access token, for a topic that needs one, likewise.
    token: InFileOrEnvironment | None = None
    # E-mail: to whom.
    address: str | None = None
    # Only proposals in these spaces; by default in all in which the participant is a member.
    spaces: tuple[str, ...] | None = None
    # When nothing is sent: {from: "22:00", to: "07:00", time_zone: Europe/Berlin}.
    quiet_hours: QuietHours | None = None
    # Also send the arguments of the call, which may be confidential, to whoever runs the receiver.
    include_arguments: bool = False


class PushConfig(NotificationSettings, frozen=True, kw_only=True):
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
    # Devices of who signs in with a provider (`gateway.oidc`) or a passkey are told for so long after they
    # were last seen here, and then that this has ended. 0: they cannot turn notifications on.
    max_seconds_since_sign_in: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] = 604_800


class NotificationsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`gateway.notifications`: messages out of the gateway. Without receivers none are sent."""

    # Receiver → its settings, as described below.
    receivers: Mapping[str, ReceiverConfig] = msgspec.field(default_factory=dict)
    # Web Push, as described below.
    push: PushConfig = PushConfig()
