"""How long tests wait for other processes and threads."""

from __future__ import annotations

PATIENCE = 600
"""Seconds after which one counts as hung: far more than any takes, however loaded the machine is."""
