"""Campaigns: many runs that one plan asks for, kept in one store, so that they go on after any kill."""
