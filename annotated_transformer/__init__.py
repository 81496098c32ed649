"""Attention Is All You Need, built piece by piece."""

__version__ = "0.1.0"
