"""``python -m seegera_fast``: the command ``seegera-fast``."""

import sys

from .command.main import main

sys.exit(main())
