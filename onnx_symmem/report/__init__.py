"""Show results to people and pipelines: data, text, html, markdown."""
