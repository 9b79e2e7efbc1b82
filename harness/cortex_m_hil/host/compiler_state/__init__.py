"""Detection of changes to the compiler in memory: once a test has replaced a pass, say, it is not that of its files."""
