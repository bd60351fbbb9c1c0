"""Push notifications: changes of a task, posted to an address that its caller chose.

A stranger chose the address, so its name is resolved once, every address of it has to be public, and the
connection goes to one of those. Redirects are not followed, and nothing of the answer is read.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import orjson
from a2a.compat.v0_3.conversions import to_compat_task
from a2a.types import TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict

from moot.agents.a2a.a2a_settings import ServeSettings
from moot.agents.a2a.task_book import ServedTask, TaskEvent
from moot.errors import MootError
from moot.net.address_check import ForbiddenAddress, allowed_addresses, connect_checked
from moot.net.http_client import HttpClient
from moot.resilience.task_set import TaskSet

# Push notifications: the time of one, tries, the wait before the second, and those that wait.
PUSH_SECONDS: Final = 15.0
MAX_PUSH_TRIES: Final = 3
PUSH_RETRY_SECONDS: Final = 2.0
MAX_WAITING_PUSHES: Final = 1_000

log = logging.getLogger(__name__)

_MAX_URL_CHARS: Final = 2_048
_MAX_SECRET_CHARS: Final = 4_096
# A target with all that it consists of: it is kept with its task.
_MAX_TARGET_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class _Push:
    config: TaskPushNotificationConfig
    body: bytes


class PushSender:
    """Posts in the order of the changes of a task, several tasks at once."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        open_socket = partial(
            connect_checked,
            timeout_seconds=PUSH_SECONDS,
            allow_private=settings.allow_private_push,
        )
        self._client = HttpClient(timeout_seconds=PUSH_SECONDS, open_socket=open_socket)
        self._waiting: dict[tuple[str, str], asyncio.Queue[_Push]] = {}
        self._tasks = TaskSet("push")
        # Posts that were given up or dropped.
        self.lost = 0

    async def close(self) -> None:
        await self._tasks.close()

    async def check(self, config: TaskPushNotificationConfig) -> None:
        """Raises InvalidParamsError for a target that is not posted to."""
        allow_private = self._settings.allow_private_push
        if config.ByteSize() > _MAX_TARGET_BYTES:
            raise InvalidParamsError(f"a push target has at most {_MAX_TARGET_BYTES} bytes")
        try:
            parts = urlsplit(config.url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            raise InvalidParamsError("the push notification URL is no URL") from None
        is_clean = config.url.isascii() and config.url.isprintable() and " " not in config.url
        if len(config.url) > _MAX_URL_CHARS or not is_clean or "@" in parts.netloc or not parts.hostname:
            raise InvalidParamsError("the push notification URL has to name a host, and no user")
        if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):
            raise InvalidParamsError("the push notification URL has to begin with https://")
        given = (config.token, config.authentication.scheme, config.authentication.credentials)
        if any(len(each) > _MAX_SECRET_CHARS or not (each.isascii() and _is_line(each)) for each in given):
            raise InvalidParamsError("token and authentication have to be one line of ASCII characters")
        try:
            await allowed_addresses(parts.hostname, port, allow_private=allow_private)
        except ForbiddenAddress:
            raise InvalidParamsError(
                "the push notification URL leads to an address that is not public"
            ) from None
        except MootError:
            raise InvalidParamsError("the host of the push notification URL cannot be found") from None

    def handle(self, served: ServedTask, event: TaskEvent) -> None:
        """A task has changed."""
        for id, config in served.push.items():
            key = (served.task.id, id)
            queue = self._waiting.get(key)
            if queue is None:
                queue = self._waiting[key] = asyncio.Queue(MAX_WAITING_PUSHES)
                self._tasks.start(self._send_all(key, queue))
            if queue.full():
                self.lost += 1
                continue
            if id in served.old_push:
                # 0.3 posts the whole task.
                body = to_compat_task(served.task).model_dump_json(by_alias=True, exclude_none=True).encode()
            else:
                body = orjson.dumps(MessageToDict(to_stream_response(event)))
            queue.put_nowait(_Push(config, body))

    async def _send_all(self, key: tuple[str, str], queue: asyncio.Queue[_Push]) -> None:
        try:
            while not queue.empty():
                await self._send(queue.get_nowait())
        finally:
            del self._waiting[key]

    async def _send(self, push: _Push) -> None:
        config = push.config
        headers = {"Content-Type": "application/a2a+json"}
        if config.token:
            headers["X-A2A-Notification-Token"] = config.token
        if config.authentication.scheme and config.authentication.credentials:
            headers["Authorization"] = f"{config.authentication.scheme} {config.authentication.credentials}"
        for attempt in range(MAX_PUSH_TRIES):
            if attempt:
                await asyncio.sleep(PUSH_RETRY_SECONDS * 2 ** (attempt - 1))
            try:
                response = await self._client.post_unread(config.url, push.body, headers)
            except ForbiddenAddress:
                break
            except MootError as fault:
                log.debug("not pushed", extra={"why": type(fault).__name__})
                continue
            if response.status < 300:
                return
            if response.status < 500 and response.status != 429:
                break
        self.lost += 1
        log.info("a push notification was given up", extra={"task": config.task_id})


def _is_line(text: str) -> bool:
    return not text or text.isprintable()
