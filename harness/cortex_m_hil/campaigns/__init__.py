"""Many runs that one plan asks for, kept in one store, so that a campaign goes on after any kill."""
