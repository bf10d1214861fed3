"""Show results to people and pipelines: figures as data with a JSON form, and as text."""
