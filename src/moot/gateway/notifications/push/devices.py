"""The devices on which people turned notifications on: who has which, and the task that tells each.

A device belongs to the token with which it was added, or to the account of a provider. It is told what waits
for its owner, in all spaces that they may enter, by the rules of other receivers. It ends when its push
service says so, when the person turns it off or signs out there, and when its owner may not enter any more.

The gateways of a cluster have their devices in common: of each space, one gateway tells all of them.
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

from moot.config.gateway_config import GatewayConfig
from moot.errors import MootError, ResourceLimit, Unavailable, UsageError
from moot.gateway.access import SpaceDirectory
from moot.gateway.notifications import channels, sender
from moot.gateway.notifications.channels import DeliveryFailed, Outcome, ReceiverGone
from moot.gateway.notifications.push.channel import PushChannel, first_body, last_body
from moot.gateway.notifications.push.device_owners import DeviceOwner, SignInEnded, answer_owners, seen_again
from moot.gateway.notifications.push.device_store import DeviceFile, DeviceStore, Edit, SharedDevices
from moot.gateway.notifications.push.subscription import ProviderAccount, Subscription
from moot.gateway.notifications.push.vapid_key import VapidKey, open_vapid_key, read_vapid_key
from moot.gateway.notifications.sender import NotificationSender, SenderRules, SharedValues
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
        self._store: DeviceStore
        # By name, as they were last read.
        self._devices: dict[str, Subscription] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()
        # What the gateways of a cluster have in common; None for one that is alone.
        self.shared: SharedValues | None = None
        # For tests, as of other senders.
        self.senders: dict[str, NotificationSender] = {}
        answer_owners(directory, self._push)

    @property
    def enabled(self) -> bool:
        return self._push.enabled

    async def start(self) -> None:
        """Go on telling the devices that are known."""
        file = self._folder / "devices.json"
        if self.shared is None:
            self._store = DeviceFile(file, self._files)
        else:
            self._store = SharedDevices(self.shared, file, self._files)
        if not self.enabled:
            return
        if self.shared is None:
            with suppress(PushUnavailable):
                await self.refresh()
        else:
            self._tasks.start(self._follow())

    async def _follow(self) -> None:
        """Know what is turned on and off at other gateways."""
        while not self._stopping.is_set():
            with suppress(PushUnavailable, Unavailable):
                await self.refresh()
            with suppress(TimeoutError):
                async with asyncio.timeout(sender.SCAN_SECONDS):
                    await self._stopping.wait()

    async def refresh(self) -> None:
        """Tell the devices that are kept, and no others. Raises PushUnavailable and Unavailable."""
        async with self._one_at_a_time:
            await self._adopt(await self._store.read())

    async def _adopt(self, kept: Iterable[Subscription]) -> None:
        wanted = {each.name: each for each in kept}
        if wanted == self._devices:
            return
        if wanted:
            key = await self.open_key()
            current = {name: each for name, each in wanted.items() if each.key == key.public}
            if len(current) < len(wanted):
                log.warning(
                    "push subscriptions dropped: the key for which they were made is lost, so people turn"
                    " notifications on again",
                    extra={"dropped": len(wanted) - len(current)},
                )
                await self._store.change(lambda known: [each for each in known if each.key == key.public])
                wanted = current
        before, self._devices = self._devices, wanted
        for name, each in before.items():
            if wanted.get(name) != each:
                self._stop(name)
        for name, each in wanted.items():
            if before.get(name) != each:
                self._run(each, key)
        gone = [self._told_file(each) for name, each in before.items() if name not in wanted]
        if gone:
            await self._in_thread(lambda: _unlink(gone))

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

    async def devices_of(self, owner: str) -> list[Subscription]:
        """Those of a token (its hash) or an account. Raises as `refresh`."""
        await self.refresh()
        return [each for each in self._devices.values() if each.owner == owner]

    async def note_seen(self, account: ProviderAccount) -> None:
        """An account is here again: its devices are told for longer, and of the spaces that it entered."""

        def renew(known: list[Subscription]) -> list[Subscription]:
            own = (each.owner == account.owner and seen_again(each, account, self._push) for each in known)
            return [renewed or each for renewed, each in zip(own, known, strict=True)]

        async with self._one_at_a_time:
            if renew(list(self._devices.values())) == list(self._devices.values()):
                return
            with suppress(OSError, Unavailable):
                # Without a file it holds until the next start, and is tried again then.
                await self._change(renew, holds_unkept=True)

    async def _change(self, edit: Edit, *, holds_unkept: bool = False) -> None:
        try:
            kept = await self._store.change(edit, holds_unkept=holds_unkept)
        except OSError:
            await self._adopt(await self._store.read())
            raise
        await self._adopt(kept)

    async def add(self, subscription: Subscription) -> None:
        """Send a first message, and keep the device if its push service took that.

        Raises DeliveryFailed and ReceiverGone if not, ResourceLimit, Unavailable, and OSError when it cannot
        be kept.
        """
        key = await self.open_key()
        owner = self._owner_of(subscription)
        # First, so that nobody is told that something is on which is not.
        channel = self._channel(subscription, key)
        names = (await owner.spaces_everywhere()).values()
        await channel.push(first_body(next(iter(names), "you")), topic="moot-first")
        async with self._one_at_a_time:
            # It may have become void meanwhile.
            spaces = await owner.spaces_everywhere()
            if not spaces:
                raise ReceiverGone
            # In each space, a device tells one participant: who signed in there last.
            replaced = {subscription.name}
            for each in await self._store.read():
                is_same = each.endpoint == subscription.endpoint
                if is_same and (await self._owner_of(each).spaces_everywhere()).keys() & spaces.keys():
                    replaced.add(each.name)

            def put(known: list[Subscription]) -> list[Subscription]:
                others = [each for each in known if each.name not in replaced]
                own = [each for each in others if each.owner == subscription.owner]
                too_many = own[: max(0, len(own) + 1 - MAX_DEVICES_PER_PARTICIPANT)]
                if len(others) - len(too_many) >= MAX_DEVICES:
                    raise ResourceLimit(
                        f"this gateway tells {MAX_DEVICES} devices, and no further ones",
                        limit="max_devices",
                    )
                return [*(each for each in others if each not in too_many), subscription]

            await self._change(put)
        log.info("push device added", extra={"device": subscription.name, "devices": len(self._devices)})

    async def turn_off(self, owner: str, id: str) -> bool:
        """Tell this device of an owner no more, whatever was renewed meanwhile; whether it was told until
        now. Raises PushUnavailable, Unavailable, and OSError if that is not kept, though it holds until the
        next start."""
        return await self._remove(lambda each: (each.owner, each.id) == (owner, id), "turned off")

    async def _remove(self, is_gone: Callable[[Subscription], bool], why: str) -> bool:
        found: list[Subscription] = []

        def take_out(known: list[Subscription]) -> list[Subscription]:
            found[:] = filter(is_gone, known)
            return [each for each in known if each not in found]

        async with self._one_at_a_time:
            try:
                await self._change(take_out, holds_unkept=True)
            finally:
                for each in found:
                    log.info("push device removed", extra={"device": each.name, "why": why})
        return bool(found)

    async def wait(self, timeout_seconds: float) -> None:
        await self._tasks.wait(timeout_seconds)

    async def close(self) -> None:
        await self._tasks.close()

    def _owner_of(self, subscription: Subscription) -> DeviceOwner:
        return DeviceOwner(self._directory, subscription.owner, subscription.account, self._push)

    def _run(self, subscription: Subscription, key: VapidKey) -> None:
        push, quiet = self._push, subscription.quiet_hours
        times = None if quiet is None else quiet.times()
        if quiet is not None and times is None:
            # Another machine knew it, or this one before.
            log.warning(
                "quiet hours are not kept: their time zone is not known here",
                extra={"device": subscription.name, "time_zone": quiet.time_zone},
            )
        sender = NotificationSender(
            subscription.name,
            self._owner_of(subscription),
            SenderRules(
                after_seconds=push.after_seconds,
                outcome_unknown=push.outcome_unknown,
                quiet=times,
            ),
            self._channel(subscription, key),
            self._directory.hosts,
            public_url=_OWN_PAGE,
            file=self._told_file(subscription),
            files=self._files,
            outcomes=self._outcomes,
            shared=self.shared,
        )
        self.senders[subscription.name] = sender
        self._running[subscription.name] = self._tasks.start(self._tell(subscription, sender))

    async def _tell(self, subscription: Subscription, sender: NotificationSender) -> None:
        try:
            await sender.run(self._stopping)
        except ReceiverGone as gone:
            # Not stopped from within itself.
            self._running.pop(subscription.name, None)
            why, is_removed = "its push service or its owner's sign-in has ended it", True
            try:
                # The same one: it may have been turned on again meanwhile.
                is_removed = await self._remove(lambda each: each == subscription, why)
            except Unavailable:
                # When the others can be told, it is looked at again.
                self._devices.pop(subscription.name, None)
                return
            except OSError:
                pass
            # By one gateway of a cluster.
            if is_removed and isinstance(gone, SignInEnded):
                await self._say_ended(subscription)

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

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)


def _unlink(files: Iterable[Path]) -> None:
    for file in files:
        # Without it nothing is lost, and nothing is told twice if it stays.
        with suppress(OSError):
            file.unlink()
