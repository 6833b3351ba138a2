//! Everything else: backups, restores, checks, conversions, pins.
