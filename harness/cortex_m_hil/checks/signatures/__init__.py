"""The arguments that each operator accepts, on each runtime; `refused_arguments` finds others."""
