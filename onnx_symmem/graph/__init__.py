"""The model as data: load, frozen index-based view, save."""
