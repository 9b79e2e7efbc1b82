"""The options of this package's pytest plugin in commands that are run, stored or printed."""

from __future__ import annotations


def pytest_options(**values: object) -> list[str]:
    """Return options of pytest by their `--hil-` names: short ones may belong to a conftest.py or to another plugin.

    Args:
        values: by the option's name without `--hil-`, such as `targets_file`. True is an option without a value, a list
            or a tuple one for each item; None, False and "" are none.
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
