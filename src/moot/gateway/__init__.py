"""The gateway: `app` puts it together, `hosting` runs one space, WebSockets and HTTP lead to it."""
