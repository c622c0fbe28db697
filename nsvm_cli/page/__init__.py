"""What a person sees in a file: curves, pictures and the HTML page of a report."""
