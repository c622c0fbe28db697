"""What a person sees in a terminal: tables, progress, the closing summary."""
