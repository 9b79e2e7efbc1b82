"""Boards as things that are shared: who may use one, its tools, whether it is well; and virtual ones."""
