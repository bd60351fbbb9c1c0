"""`python -m moot.cli.adapter` is `xprotocol-adapter`."""

import sys

from moot.cli.adapter import main

sys.exit(main())
