"""The words of a space, pure: envelopes, kinds, capabilities, three dialects. Nothing here opens or logs."""
