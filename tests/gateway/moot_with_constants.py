"""`python -m tests.gateway.moot_with_constants MODULE` is a program of ours with other constants.

TRIED_CONSTANTS has them: the path of each as JSON, with its value.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

if __name__ == "__main__":
    for path, value in json.loads(os.environ.pop("TRIED_CONSTANTS")).items():
        module, _, name = path.rpartition(".")
        setattr(importlib.import_module(module), name, value)

    program = importlib.import_module(sys.argv.pop(1))
    sys.exit(program.main())
