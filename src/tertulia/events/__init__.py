"""The event log of a session: append, replay, relay to many listeners."""
