"""The version, for all who write it down."""

__version__ = "0.1.0"
