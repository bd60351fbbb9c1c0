"""The event relay: signed events in, kept until they expire, handed on as they came to whom they are for."""
