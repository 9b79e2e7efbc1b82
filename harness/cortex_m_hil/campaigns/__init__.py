"""Campaigns: many runs of one plan, recorded in a store, so that a killed campaign can be resumed."""
