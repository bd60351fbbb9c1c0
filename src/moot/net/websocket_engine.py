"""picows, without what it loads for connections that we never make: through a proxy, or by a loop of its own.

To load those takes longer than to load the rest of it, and each short command that joins a space would.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

# A name that is None here cannot be imported, which picows takes for: not installed.
_NOT_INSTALLED: Final = "aiofastnet"
_PROXIES: Final = "python_socks"


@contextmanager
def _left_out() -> Iterator[None]:
    names, loop = ModuleType(_PROXIES), ModuleType(f"{_PROXIES}.async_.asyncio")
    vars(names)["ProxyError"] = type("ProxyError", (Exception,), {})
    vars(loop)["Proxy"] = None
    stand_ins = {_NOT_INSTALLED: None, _PROXIES: names, f"{_PROXIES}.async_": loop, loop.__name__: loop}
    missing = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(missing)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


try:
    with _left_out():
        import picows
except ImportError:
    # A version that is made otherwise: then with all of it.
    import picows

WSAutoPingStrategy = picows.WSAutoPingStrategy
WSCloseCode = picows.WSCloseCode
WSError = picows.WSError
WSFrame = picows.WSFrame
WSHandshakeError = picows.WSHandshakeError
WSListener = picows.WSListener
WSMsgType = picows.WSMsgType
WSProtocolError = picows.WSProtocolError
WSTransport = picows.WSTransport
ws_connect = picows.ws_connect
