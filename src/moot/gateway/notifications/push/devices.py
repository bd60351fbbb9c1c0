"""The devices on which people turned notifications on: who has which, and the task that tells each.

A device belongs to the token with which it was added, or to the account of a provider. It is told what waits
for its owner, in all spaces that they may enter, by the rules of other receivers. It ends when its push
service says so, when the person turns it off or signs out there, and when its owner may not enter any more.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from moot.config.gateway_config import GatewayConfig
from moot.errors import MootError, ResourceLimit, Unavailable, UsageError
from moot.gateway.access import SpaceDirectory
from moot.gateway.notifications import channels
from moot.gateway.notifications.channels import DeliveryFailed, Outcome, ReceiverGone
from moot.gateway.notifications.push.channel import PushChannel, first_body, last_body
from moot.gateway.notifications.push.device_owners import DeviceOwner, SignInEnded, owner_of, seen_again
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.gateway.notifications.push.vapid_key import VapidKey, open_vapid_key, read_vapid_key
from moot.gateway.notifications.sender import NotificationSender, SenderRules, SharedValues
from moot.resilience.atomic_file import write_atomically
from moot.resilience.task_set import TaskSet
from moot.store.worker_thread import DaemonExecutor

T = TypeVar("T")

log = logging.getLogger(__name__)

# Devices of one participant; of more, the one that was added first is removed.
MAX_DEVICES_PER_PARTICIPANT: Final = 8
# Of all together. Each looks for something to tell every two seconds.
MAX_DEVICES: Final = 200
# A page below the gateway's own address: the service worker puts the rest before it.
_OWN_PAGE: Final = ""
# Some services refuse a signature that names nobody.
_NO_CONTACT: Final = "https://localhost"


class PushUnavailable(MootError):
    """Web Push cannot be used here; the text says why and what to do."""


class PushDevices:
    """All devices of a gateway."""

    def __init__(
        self,
        config: GatewayConfig,
        directory: SpaceDirectory,
        *,
        files: DaemonExecutor,
        outcomes: Counter[Outcome],
        stopping: asyncio.Event,
    ) -> None:
        self._config = config
        self._push = config.notifications.push
        self._directory = directory
        self._files = files
        self._outcomes = outcomes
        self._stopping = stopping
        self._folder = config.data / "push"
        self._tasks = TaskSet("web push")
        # Made at the first use: it reads all certificates of the system.
        self._tls: ssl.SSLContext | None = None
        self._key: VapidKey | None = None
        # By name, in the order in which they were added.
        self._devices: dict[str, Subscription] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        # What the gateways of a cluster have in common; None for one that is alone.
        self.shared: SharedValues | None = None
        # For tests, as of other senders.
        self.senders: dict[str, NotificationSender] = {}

    @property
    def enabled(self) -> bool:
        return self._push.enabled

    async def start(self) -> None:
        """Go on telling the devices that are known."""
        if not self.enabled:
            return
        kept = await self._in_thread(lambda: read_subscriptions(self._folder / "devices.json"))
        if not kept:
            return
        try:
            key = await self.open_key()
        except PushUnavailable:
            return
        current = [each for each in kept if each.key == key.public]
        for each in current:
            self._devices[each.name] = each
            self._run(each, key)
        if len(current) < len(kept):
            log.warning(
                "push subscriptions dropped: the key for which they were made is lost, so people turn"
                " notifications on again",
                extra={"dropped": len(kept) - len(current)},
            )
            await self._write()

    async def open_key(self) -> VapidKey:
        """The gateway's key, made when it is first needed; raises PushUnavailable."""
        if self._key is None:
            file = self._folder / "vapid.pem"
            try:
                key = await self._in_thread(lambda: open_vapid_key(file))
                if self.shared is not None:
                    # That of the gateway that was first: a browser has one for all of them.
                    key = read_vapid_key(await self.shared.create("vapid", key.pem), "the cluster's bucket")
                self._key = key
            except (OSError, UsageError, Unavailable) as fault:
                why = type(fault).__name__ if isinstance(fault, OSError) else str(fault)
                log.error("web push is off: its key cannot be used", extra={"file": str(file), "why": why})
                raise PushUnavailable(
                    "the gateway cannot use its key for notifications: its log says why"
                ) from None
        return self._key

    def devices_of(self, owner: str) -> list[Subscription]:
        """Those of a token (its hash) or an account."""
        return [each for each in self._devices.values() if each.owner == owner]

    async def note_seen(self, account: ProviderAccount) -> None:
        """An account is here again: its devices are told for longer, and of the spaces that it entered."""
        async with self._one_at_a_time:
            found = [seen_again(each, account, self._push) for each in self.devices_of(account.owner)]
            renewed = [each for each in found if each is not None]
            if not renewed or self._key is None:
                return
            for each in renewed:
                self._devices[each.name] = each
                self._stop(each.name)
                self._run(each, self._key)
            with suppress(OSError):
                # It holds until the next start, and is tried again then.
                await self._write()

    async def add(self, subscription: Subscription) -> None:
        """Send a first message, and keep the device if its push service took that.

        Raises DeliveryFailed and ReceiverGone if not, ResourceLimit, and OSError when it cannot be kept.
        """
        key = await self.open_key()
        owner = self._owner_of(subscription)
        # First, so that nobody is told that something is on which is not.
        channel = self._channel(subscription, key)
        await channel.push(first_body(next(iter(owner.spaces().values()), "you")), topic="moot-first")
        async with self._one_at_a_time:
            # It may have become void meanwhile.
            owner.check()
            others = [each for each in self._devices.values() if each.name != subscription.name]
            removed = [each for each in others if self._is_replaced(each, subscription, owner)]
            own = [each for each in others if each.owner == subscription.owner and each not in removed]
            removed += own[: max(0, len(own) + 1 - MAX_DEVICES_PER_PARTICIPANT)]
            if len(others) - len(removed) >= MAX_DEVICES:
                raise ResourceLimit(
                    f"this gateway tells {MAX_DEVICES} devices, and no further ones",
                    limit="max_devices",
                )
            before = dict(self._devices)
            for each in removed:
                del self._devices[each.name]
            self._devices.pop(subscription.name, None)
            self._devices[subscription.name] = subscription
            try:
                await self._write()
            except OSError:
                self._devices = before
                raise
            for each in (*removed, subscription):
                self._stop(each.name)
            self._run(subscription, key)
        log.info("push device added", extra={"device": subscription.name, "devices": len(self._devices)})

    async def remove(self, subscriptions: Iterable[Subscription], why: str) -> None:
        """Tell these no more; raises OSError if that is not kept, though it holds until the next start."""
        async with self._one_at_a_time:
            # The same one: it may have been turned on again meanwhile.
            found = [each for each in subscriptions if self._devices.get(each.name) is each]
            for each in found:
                del self._devices[each.name]
                self._stop(each.name)
                log.info("push device removed", extra={"device": each.name, "why": why})
            if found:
                await self._write()
                await self._in_thread(lambda: _unlink(map(self._told_file, found)))

    async def wait(self, timeout_seconds: float) -> None:
        await self._tasks.wait(timeout_seconds)

    async def close(self) -> None:
        await self._tasks.close()

    def _owner_of(self, subscription: Subscription) -> DeviceOwner:
        return owner_of(self._directory, subscription, self._push)

    def _is_replaced(self, other: Subscription, new: Subscription, owner: DeviceOwner) -> bool:
        """In each space, a device tells one participant: who signed in there last."""
        if other.endpoint != new.endpoint:
            return False
        return bool(self._owner_of(other).spaces().keys() & owner.spaces().keys())

    def _run(self, subscription: Subscription, key: VapidKey) -> None:
        quiet, push = subscription.quiet_hours, self._push
        sender = NotificationSender(
            subscription.name,
            self._owner_of(subscription),
            SenderRules(
                after_seconds=push.after_seconds,
                outcome_unknown=push.outcome_unknown,
                quiet=None if quiet is None else quiet.times(),
            ),
            self._channel(subscription, key),
            self._directory.hosts,
            public_url=_OWN_PAGE,
            file=self._told_file(subscription),
            files=self._files,
            outcomes=self._outcomes,
        )
        self.senders[subscription.name] = sender
        self._running[subscription.name] = self._tasks.start(self._tell(subscription, sender))

    async def _tell(self, subscription: Subscription, sender: NotificationSender) -> None:
        try:
            await sender.run(self._stopping)
        except ReceiverGone as gone:
            if isinstance(gone, SignInEnded):
                await self._say_ended(subscription)
            # Not stopped from within itself.
            self._running.pop(subscription.name, None)
            with suppress(OSError):
                await self.remove([subscription], "its push service or its owner's sign-in has ended it")

    async def _say_ended(self, subscription: Subscription) -> None:
        """Nobody should think that they are told when they are not. Tried once: it is no news later."""
        with suppress(DeliveryFailed, PushUnavailable):
            channel = self._channel(subscription, await self.open_key())
            await channel.push(last_body(), topic="moot-first")

    def _stop(self, name: str) -> None:
        self.senders.pop(name, None)
        task = self._running.pop(name, None)
        if task is not None:
            task.cancel()

    def _channel(self, subscription: Subscription, key: VapidKey) -> PushChannel:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return PushChannel(
            subscription,
            key,
            self._push,
            contact=self._contact_of(subscription),
            timeout_seconds=channels.TIMEOUT_SECONDS,
            tls=self._tls if subscription.endpoint.lower().startswith("https:") else None,
        )

    def _contact_of(self, subscription: Subscription) -> str:
        known = (self._push.contact, self._config.public_url, subscription.origin)
        return next((each for each in known if each and each.startswith(("https:", "mailto:"))), _NO_CONTACT)

    def _told_file(self, subscription: Subscription) -> Path:
        return self._config.data / "notifications" / f"{subscription.name}.json"

    async def _write(self) -> None:
        found = list(self._devices.values())
        await self._in_thread(lambda: write_subscriptions(self._folder / "devices.json", found))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _unlink(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


# The subscriptions of all people in one file of the data folder, readable by the gateway's user alone.
#
# Without the file nobody is told by Web Push until they turn it on again; nothing else depends on it.


def read_subscriptions(file: Path) -> list[Subscription]:
    """Those that are kept; none, with a warning, if the file cannot be read."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=list[Subscription])
        for each in found:
            # Raises ValueError.
            _ = each.browser_keys
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as fault:
        log.warning(
            "push subscriptions cannot be read: people turn notifications on again",
            extra={"file": str(file), "why": type(fault).__name__},
        )
        return []
    return found


def write_subscriptions(file: Path, subscriptions: Iterable[Subscription]) -> None:
    """Replace the file; raises OSError."""
    write_atomically(file, msgspec.json.encode(list(subscriptions)))
