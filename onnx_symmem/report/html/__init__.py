"""The report as one HTML page that opens offline: data and formulas in, a self-contained file out."""
