"""The comparison of outputs with references; `compare_outputs` begins it."""
