"""How long tests wait for other processes and threads."""

from __future__ import annotations

PATIENCE = 600
"""Seconds after which a process or thread counts as hung; even on a busy machine, it needs far fewer."""
