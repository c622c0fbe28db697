"""Output in files: curves, pictures and the HTML page of a report."""
