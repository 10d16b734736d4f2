"""The version of this release: one place, importable from everywhere."""

__version__ = "0.1.0"
