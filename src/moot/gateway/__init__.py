"""The gateway: `app` puts it together, `space_host` runs one space, WebSockets and HTTP lead to it."""
