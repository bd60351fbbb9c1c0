"""Requests to the API of a chat platform: JSON both ways, bounded, and no token in what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson

from moot.chat.platform import PlatformFault
from moot.errors import Unreachable
from moot.net.http_client import HttpClient, ResponseTooLarge

# A page of a busy account: Matrix and Telegram send at most 100 events at once here.
MAX_ANSWER_BYTES: Final = 8 << 20
_ANSWER_SECONDS: Final = 30.0
_MAX_FAULT_CHARS: Final = 300


class AnswerTooLarge(PlatformFault):
    """Asking the same again gets the same."""


class JsonApi:
    """One API, by one token."""

    def __init__(self, name: str, base: str, token: str, headers: Mapping[str, str] | None = None) -> None:
        """`base` may hold the token; it is never shown."""
        self._name = name
        self._base = base
        self._token = token
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    async def call(
        self,
        method: Literal["GET", "POST", "PUT"],
        path: str,
        body: Any = None,
        *,
        wait_seconds: float = 0.0,
        needs: str = "",
    ) -> dict[str, Any]:
        """The answer, with the field that is needed; raises PlatformFault.

        `wait_seconds`: how long the other side may hold it back.
        """
        client = HttpClient(
            timeout_seconds=_ANSWER_SECONDS + wait_seconds, max_bytes=MAX_ANSWER_BYTES, headers=self._headers
        )
        url, data = f"{self._base}{path}", orjson.dumps({} if body is None else body)
        try:
            match method:
                case "GET":
                    answer = await client.get(url)
                case "POST":
                    answer = await client.post(url, data, {})
                case "PUT":
                    answer = await client.put(url, data, {})
            found = orjson.loads(answer.body)
        except ResponseTooLarge:
            raise AnswerTooLarge(
                f"{self._name} answered with more than {MAX_ANSWER_BYTES >> 20} MiB"
            ) from None
        except Unreachable as fault:
            raise PlatformFault(self._safe(f"{self._name} cannot be reached: {fault}")) from None
        except orjson.JSONDecodeError:
            raise PlatformFault(f"{self._name} answered with something else than JSON") from None
        if not isinstance(found, dict):
            raise PlatformFault(f"{self._name} answered with something else than an object")
        if answer.status >= 400 or found.get("ok") is False:
            raise self._fault(answer.status, found)
        if needs and found.get(needs) is None:
            raise PlatformFault(f"{self._name} answered without {needs}")
        return found

    def _fault(self, status: int, found: dict[str, Any]) -> PlatformFault:
        why = found.get("error") or found.get("description") or found.get("errcode") or f"HTTP {status}"
        wait = _seconds_in(found)
        is_passing = status == 429 or status >= 500 or wait > 0 or why == "ratelimited"
        text = self._safe(f"{self._name} refused it: {why}")
        return PlatformFault(text, wait_seconds=wait, is_final=not is_passing)

    def _safe(self, text: str) -> str:
        return text.replace(self._token, "…")[:_MAX_FAULT_CHARS]


def _seconds_in(found: dict[str, Any]) -> float:
    """How long the platform wants us to wait, as Matrix, Telegram and Slack say it; at most a minute."""
    more = found.get("parameters")
    seconds = more.get("retry_after") if isinstance(more, dict) else found.get("retry_after")
    if isinstance(milliseconds := found.get("retry_after_ms"), int | float):
        seconds = milliseconds / 1_000
    return min(60.0, float(seconds)) if isinstance(seconds, int | float) and seconds > 0 else 0.0
