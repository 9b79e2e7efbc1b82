"""Detection of changes to the compiler in memory, such as a pass that a test replaced."""
