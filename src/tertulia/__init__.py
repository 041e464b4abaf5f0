"""Tertulia: a self-hosted conversation server for people and AI agents."""

__version__ = "0.1.0"
