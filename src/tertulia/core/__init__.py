"""Decisions without I/O: what a message is, what may happen to a turn, what a model is shown."""
