from collections.abc import Callable

class FrameReader:
    max_message_bytes: int
    ignores_messages: bool
    def __init__(
        self,
        on_message: Callable[[bytes, bool], object],
        on_control: Callable[[int, bytes], object],
        max_message_bytes: int,
        max_fragments: int,
    ) -> None: ...
    @property
    def held_bytes(self) -> int: ...
    def take(self, data: bytearray, size: int) -> None: ...
    def read(self, max_frames: int, seconds: float) -> bool: ...
    def stop(self) -> None: ...
