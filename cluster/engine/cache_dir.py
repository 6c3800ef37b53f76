"""Where everything that is made once and kept lies: converted models and machine code."""

import os
from pathlib import Path


def cache_root(parent: Path | None = None) -> Path:
    """The folder `outrider` below `parent`, or below the user's cache folder."""
    return (parent or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")) / "outrider"
