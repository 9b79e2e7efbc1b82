"""Boards that are shared: leases, health and tools of a board, and virtual boards."""
