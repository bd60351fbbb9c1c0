"""What members prove themselves with: short-lived tokens and passkeys."""
