"""All who are told outside of the console: receivers of the configuration, and devices of Web Push."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from zoneinfo import ZoneInfo

from moot.config.gateway_config import GatewayConfig
from moot.config.notification_config import QuietHours, ReceiverConfig
from moot.gateway.access import SpaceDirectory
from moot.gateway.notifications.channels import Outcome, open_channel
from moot.gateway.notifications.push.devices import PushDevices
from moot.gateway.notifications.schedule import QuietTimes
from moot.gateway.notifications.sender import NotificationSender, SenderRules, SharedValues
from moot.resilience.task_set import TaskSet
from moot.store.worker_thread import DaemonExecutor

# What is under way when the gateway stops has this long; then it is told once more after the restart.
_STOP_SECONDS: Final = 1.0


class ConfiguredRecipient:
    """The participant whose receiver this is, in the spaces that were chosen for it."""

    def __init__(self, receiver: ReceiverConfig) -> None:
        self.owner = receiver.participant
        self._spaces = receiver.spaces

    def participant_in(self, space: str) -> str | None:
        return self.owner if self._spaces is None or space in self._spaces else None

    async def check(self) -> None:
        """It stays for as long as the configuration says so."""


class Notifier:
    """All receivers and devices of a gateway."""

    def __init__(
        self,
        config: GatewayConfig,
        directory: SpaceDirectory,
    ) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        # What the gateways of a cluster have in common; None for one that is alone.
        self.shared: SharedValues | None = None
        self.senders: list[NotificationSender] = []
        self._config = config
        self._directory = directory
        self._stopping = asyncio.Event()
        self._tasks = TaskSet("notifications")
        self._files = DaemonExecutor("notifications")
        self.devices = PushDevices(
            config, directory, files=self._files, outcomes=self.outcomes, stopping=self._stopping
        )

    async def start(self) -> None:
        """Begin; the spaces are open."""
        folder = self._config.data / "notifications"
        for name, receiver in self._config.notifications.receivers.items():
            channel = open_channel(receiver, self._config.smtp)
            sender = NotificationSender(
                name,
                ConfiguredRecipient(receiver),
                _rules_of(receiver),
                channel,
                self._directory.hosts,
                public_url=self._config.public_url,
                file=folder / f"{name}.json",
                files=self._files,
                outcomes=self.outcomes,
                shared=self.shared,
            )
            self.senders.append(sender)
            self._tasks.start(sender.run(self._stopping))
        self.devices.shared = self.shared
        await self.devices.start()

    async def stop(self) -> None:
        """Let what is under way end, briefly."""
        self._stopping.set()
        await asyncio.gather(self._tasks.wait(_STOP_SECONDS), self.devices.wait(_STOP_SECONDS))
        await asyncio.gather(self._tasks.close(), self.devices.close())
        self._files.shutdown()


def _rules_of(receiver: ReceiverConfig) -> SenderRules:
    return SenderRules(
        after_seconds=receiver.after_seconds,
        outcome_unknown=receiver.outcome_unknown,
        quiet=_quiet_times(receiver.quiet_hours),
        include_arguments=receiver.include_arguments,
    )


def _quiet_times(quiet: QuietHours | None) -> QuietTimes | None:
    return None if quiet is None else QuietTimes(quiet.start, quiet.end, ZoneInfo(quiet.time_zone))
