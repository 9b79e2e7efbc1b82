"""The options of this package's pytest plugin in commands that are run, stored or printed."""

from __future__ import annotations


def pytest_options(**values: object) -> list[str]:
    """Return pytest options with their `--hil-` names, since short names may belong to a conftest.py or another plugin.

    Args:
        values: values by the option's name without `--hil-`, such as `targets_file`. True gives an option without a
            value, a list or tuple an option for each item; None, False and "" give no option.
    """
    words = []
    for name, value in values.items():
        option = f"--hil-{name.replace('_', '-')}"
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(option)
            elif one is not None and one is not False and one != "":
                words.append(f"{option}={one}")
    return words
