"""`python -m moot.cli` is the `moot` command."""

import sys

from moot.cli import main

sys.exit(main())
