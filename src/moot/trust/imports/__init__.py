"""Permissions of coding agents (Claude Code, Codex, Cursor), read and made rules of a space."""
