"""Is the compiler in memory the one in its files? Who changes a pass of it, in a test say, has another compiler."""
