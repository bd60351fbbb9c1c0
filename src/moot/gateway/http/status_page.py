"""The page that a gateway shows where the console is turned off."""

from __future__ import annotations

from typing import Final

STATUS_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Moot gateway</title>
<h1>Moot gateway</h1>
<p>This gateway is running. People, agents and tools meet in its spaces over WebSocket.</p>
<ul>
<li>WebSocket: <code>/ws?space=NAME</code> (MCPx: <code>/ws?topic=NAME</code>)
with <code>Authorization: Bearer TOKEN</code></li>
<li><a href="health">/health</a>: is it well</li>
<li><a href="openapi.json">/openapi.json</a>: the HTTP interface</li>
</ul>
</html>
"""
