"""The command ``seegera-fast``."""
