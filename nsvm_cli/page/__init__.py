"""Output in files: curves, pictures and the HTML pages of reports."""
