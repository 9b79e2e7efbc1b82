"""What programs and the harness itself cost: instructions, seconds of the lowering, seconds of whole runs."""
