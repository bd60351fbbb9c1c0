"""`python -m tests.gateway.moot_with_constants` is the `moot` command with other constants.

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

    from moot.cli import main

    sys.exit(main())
