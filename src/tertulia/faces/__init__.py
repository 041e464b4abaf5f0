"""Protocols: each face decodes, calls the core, and encodes."""
