"""A message as ntfy, Slack and a mail program read it. Pure.

What a proposer chose is in all of them as plain text. The one link is ours.
"""

from __future__ import annotations

from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from typing import Final

import orjson

from moot.gateway.notifications.message import Message, lines_of, title_of, without_markup
from moot.protocol.operation import Json

# ntfy makes an attachment of what is longer than 4,096 bytes.
_NTFY_BYTES: Final = 4_000
# A block of Slack holds 3,000.
_SLACK_CHARS: Final = 2_900
_TITLE_CHARS: Final = 200


def ntfy_body(message: Message, topic: str) -> bytes:
    """JSON for the root of the server; as headers, a title would have to be encoded."""
    fields: dict[str, Json] = {
        "topic": topic,
        "title": title_of(message)[:_TITLE_CHARS],
        "message": cut_bytes("\n".join(lines_of(message)), _NTFY_BYTES),
    }
    if message.link is not None:
        fields["click"] = message.link
    return orjson.dumps(fields)


def slack_body(message: Message) -> bytes:
    """A block of plain text, in which Slack reads no markup, and a link; `text` is for its notifications.

    Programs that only take after Slack show `text`, so it has neither markup nor mentions, but the link.
    """
    text = "\n".join(lines_of(message))[:_SLACK_CHARS]
    blocks: list[Json] = [{"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}]
    summary = without_markup(title_of(message)[:_TITLE_CHARS])
    if message.link is not None:
        # Signs that would end a link are refused in public_url and encoded behind it.
        link = f"<{message.link}|{'Open the list' if message.is_summary else 'Open the proposal'}>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link}})
        summary = f"{summary} {link}"
    fields: dict[str, Json] = {
        "text": summary,
        "blocks": blocks,
        "link_names": False,
        "parse": "none",
        "unfurl_links": False,
        "unfurl_media": False,
    }
    return orjson.dumps(fields)


def mail_of(message: Message, *, sender: str, address: str, now: float) -> EmailMessage:
    """A plain mail; its id stays the same when it is sent again."""
    mail = EmailMessage()
    mail["From"] = sender
    mail["To"] = address
    mail["Subject"] = title_of(message)[:_TITLE_CHARS]
    mail["Date"] = formatdate(now)
    domain = parseaddr(sender)[1].rpartition("@")[2] or "localhost"
    mail["Message-ID"] = f"<{message.delivery}@{domain}>"
    # RFC 3834: nobody is to answer that they are on holiday.
    mail["Auto-Submitted"] = "auto-generated"
    where = [] if message.link is None else ["", f"Decide: {message.link}", "You sign in there as always."]
    mail.set_content("\n".join([*lines_of(message), *where, ""]))
    return mail


def cut_bytes(text: str, most: int) -> str:
    encoded = text.encode()
    return text if len(encoded) <= most else encoded[:most].decode("utf-8", "ignore") + "…"
