"""Targets and boards: what `targets.yaml` and `board.yaml` say, parsed into checked, frozen values."""
