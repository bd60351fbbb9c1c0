"""The logs of a gateway's journals: kept, signed, witnessed; and witnessing those of others."""
