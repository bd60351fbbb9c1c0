"""Ask the gateway in this container whether it is ready: exit code 0 if it is, 1 and a line if not.

Only the standard library, without a shell or curl, and nothing of Moot: it starts in a few hundredths of a
second. The port is that of MOOT_GATEWAY__PORT, as the gateway itself reads it; 8080 without.
"""

from __future__ import annotations

import http.client
import os
import sys


def main() -> int:
    port = int(os.environ.get("MOOT_GATEWAY__PORT") or "8080")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        said = answer.read(400).decode("utf-8", "replace")
    except OSError as fault:
        print(f"no answer on port {port}: {fault}")
        return 1
    finally:
        connection.close()
    print(said)
    return 0 if answer.status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
