"""Output on a terminal: tables, progress and the closing summary."""
