"""Reports: one table and one self-contained HTML page."""
