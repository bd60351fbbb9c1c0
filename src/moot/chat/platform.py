"""What a chat platform has to do for `moot chat`. A new one is one file with a class like this.

The platform proves who acts (its own ids of accounts, over its own authenticated connection) and moves texts.
It decides nothing: whether an act counts is judged in `act_check`, and whether it may be done by the gateway.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from moot.errors import MootError

Verb = Literal["approve", "reject", "ask", "show"]
LABELS: Final[dict[Verb, str]] = {
    "approve": "Approve",
    "reject": "Reject",
    "ask": "Ask back",
    "show": "Show them",
}


class PlatformFault(MootError):
    """The chat platform did not do what it was asked for; the text names no token and no address with one."""

    def __init__(self, message: str, *, wait_seconds: float = 0.0, is_final: bool = False) -> None:
        """`is_final`: asking again does not help, as for a room that we are no longer in."""
        super().__init__(message)
        self.wait_seconds = wait_seconds
        self.is_final = is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One message about proposals, as text that no platform may read markup in."""

    # Carried by its buttons, so that a press can be told from one on another card. Nobody can guess it.
    key: str
    title: str
    # The call to the last character, to be shown with its line ends and blanks.
    body: str
    notes: tuple[str, ...] = ()
    link: str = ""
    verbs: tuple[Verb, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAct:
    """Something that somebody did in a chat, as the platform vouches for it."""

    # Of this act alone, the same whenever the platform tells of it again.
    event: str
    # The platform's own id of the account: no name that people choose.
    account: str
    room: str
    # Seconds since 1970, by the platform's clock.
    at: float
    # A press, or "text" for words.
    verb: Verb | Literal["text"]
    # The message that was acted on or replied to; empty if none was.
    message: str = ""
    # What the button carried, where the platform has buttons.
    key: str = ""
    text: str = ""
    # Whether nobody but this account and we are in the room, looked up for this act.
    is_private: bool = False
    is_bot: bool = False
    is_edited: bool = False
    is_forwarded: bool = False


Receive = Callable[[ChatAct], Awaitable[None]]


class Platform(Protocol):
    """One connection to one platform, as one account of its own. All but `run` raise PlatformFault."""

    # For people, as in "Matrix".
    name: str
    # How long the text of a card may be, in units of UTF-16, without its link.
    max_card_chars: int
    # Whether a press comes from a button that carries the card's key.
    has_buttons: bool
    # How people act there: a sentence for the help.
    how_to: str

    async def start(self) -> str:
        """Sign in; returns our own account, for people."""
        ...

    async def run(self, receive: Receive, cursor: str, keep_cursor: Callable[[str], None]) -> None:
        """Hand over each act, in order, until cancelled; the cursor is where the last run was."""
        ...

    async def send_card(self, room: str, card: Card) -> str:
        """Send a card; returns the id of its message."""
        ...

    async def change_card(self, room: str, message: str, card: Card) -> None:
        """Show this in place of the card that is there."""
        ...

    async def tell(self, room: str, text: str, *, about: str = "") -> None:
        """Say something: below the message `about`, in its thread where the platform has threads."""
        ...

    async def is_private(self, room: str, account: str) -> bool:
        """Whether nobody but this account and we are in the room now."""
        ...
