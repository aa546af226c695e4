"""Where a translation looked, and what it depends on."""
