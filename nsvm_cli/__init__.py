"""Neural support vector machines, trained from the command line (Simon & Radons 2023)."""

__version__ = "0.1.0"
