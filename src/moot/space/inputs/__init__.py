"""What reaches a space beside messages and connections: sign-ins, passkeys, and what operators change."""
