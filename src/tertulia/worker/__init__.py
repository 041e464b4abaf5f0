"""Lease → turn → agent → commit: everything between a wake-up and the end of a turn."""
