"""Lines and branches of the kernels that targets execute: docs/maintainers.md."""
