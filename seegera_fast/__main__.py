"""``python -m seegera_fast``: the command ``seegera-fast``."""

import sys

from .cli import main

sys.exit(main())
