"""Boards as things that are shared: who may use one, the tools that flash, reset and power it, whether it is well."""
