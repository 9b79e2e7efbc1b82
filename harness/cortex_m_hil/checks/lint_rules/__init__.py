"""The rules of lint, by subject: each takes a `LintSubject` and yields findings. `checks.lint` lists them."""
