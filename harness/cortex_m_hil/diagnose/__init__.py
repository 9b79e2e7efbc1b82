"""What goes beyond a verdict: who did it, and where."""
