"""Hardware-in-the-loop tests for ExecuTorch programs on Arm Cortex-M.

A library first: the pytest plugin, the ``hil`` command and the upstream adapter are callers of it.
"""

__version__ = "0.1.0"
