"""Whose bytes are handled next: a slice each, and first whoever has used least."""

from __future__ import annotations

import asyncio

import pytest

from moot.net import read_schedule
from moot.net.read_schedule import ReadSchedule


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame is more than a slice, and two are more than a turn."""
    monkeypatch.setattr(read_schedule, "SLICE_BYTES", 1_000)
    monkeypatch.setattr(read_schedule, "SLICE_SECONDS", 0.5)
    monkeypatch.setattr(read_schedule, "TURN_SECONDS", 1.5)


class Stage:
    """A schedule, and a clock that moves on by one second with every frame."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.schedule = ReadSchedule(clock=lambda: self.now)

    def read(self, source: Source, size: int = 600) -> None:
        self.schedule.handle(source, size, self.now)

    async def turn(self) -> int:
        """One turn of the loop; how many frames were handled in it."""
        before = len(self.log)
        await asyncio.sleep(0)
        return len(self.log) - before


class Source:
    """A connection with so many frames."""

    def __init__(self, stage: Stage, name: str, frames: int) -> None:
        self.stage = stage
        self.name = name
        self.frames = frames
        self.used_seconds = 0.0
        self.is_queued = False
        self.is_paused = False

    def handle_slice(self, seconds: float) -> bool:
        end = self.stage.now + seconds
        while self.frames and self.stage.now < end:
            self.stage.now += 1
            self.frames -= 1
            self.stage.log.append(self.name)
        return self.frames > 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


async def test_what_is_left_after_a_slice_waits_and_is_not_read_meanwhile() -> None:
    stage = Stage()
    loud = Source(stage, "loud", 5)
    stage.read(loud)
    assert (loud.frames, loud.is_paused) == (4, True)
    assert await stage.turn() == 2
    assert loud.is_paused
    assert await stage.turn() == 2
    assert not loud.is_paused


async def test_who_has_more_in_the_kernel_lets_others_go_first() -> None:
    """A full read: on uvloop the same connection would be read up to 32 times in a row."""
    stage = Stage()
    loud = Source(stage, "loud", 1)
    stage.read(loud, size=1_000)
    assert loud.is_paused
    await stage.turn()
    assert not loud.is_paused


async def test_a_word_goes_before_any_number_of_floods() -> None:
    stage = Stage()
    for number in range(64):
        stage.read(Source(stage, f"flood {number}", 20))
    await stage.turn()
    word = Source(stage, "word", 1)
    stage.read(word, size=60)
    assert word.frames == 1, "it waits, too: the turn is over"
    await stage.turn()
    assert (word.frames, word.is_paused) == (0, False)


async def test_many_who_send_a_little_share_one_turn() -> None:
    stage = Stage()
    many = [Source(stage, str(number), 1) for number in range(10)]
    for each in many:
        stage.read(each)
    assert len(stage.log) == 2
    for _ in range(4):
        assert await stage.turn() == 2
    assert stage.log == [each.name for each in many], "first come, first served among equals"
    assert not any(each.is_paused for each in many)


async def test_coming_again_as_somebody_new_saves_up_no_time() -> None:
    stage = Stage()
    for name in ("first", "second"):
        stage.read(Source(stage, name, 40))
    for _ in range(10):
        await stage.turn()
    stage.read(Source(stage, "new", 40))
    stage.log.clear()
    for _ in range(15):
        await stage.turn()
    shares = [stage.log.count(name) for name in ("first", "second", "new")]
    assert max(shares) - min(shares) <= 1, shares
