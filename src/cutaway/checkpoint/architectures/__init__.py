"""The published architectures, one short file each: their config keys and their rows."""
