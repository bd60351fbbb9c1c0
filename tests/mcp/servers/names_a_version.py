"""A handshake server that says the version that it is given, and knows nothing else."""

import json
import sys

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "initialize":
        version = json.loads(sys.argv[1])
        answer["result"] = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x"}}
    else:
        answer["error"] = {"code": -32601, "message": "what?"}
    if "id" in asked:
        print(json.dumps(answer), flush=True)
