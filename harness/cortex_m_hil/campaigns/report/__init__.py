"""Reports and summaries that users read after a run."""
