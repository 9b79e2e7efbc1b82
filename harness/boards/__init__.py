"""Boards: virtual ones."""
