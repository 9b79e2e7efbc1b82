"""What users read after a run."""
