"""One space as a synchronous state machine, pure: inputs in, effects out. Start reading at `space.py`."""
