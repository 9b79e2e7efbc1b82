"""Pictures of a profile: SVG files, and one page for a browser."""
