"""docs/failures.md has a section for each class of errors.py, on its branch, and for no other."""

from __future__ import annotations

import re

from cortex_m_hil import errors
from paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "failures.md").read_text()


def subclasses(branch: type[errors.HarnessError]) -> set[str]:
    found = {branch}
    while more := {below for one in found for below in one.__subclasses__()} - found:
        found |= more
    return {one.__name__ for one in found - {branch} if one.__module__ == errors.__name__}


def sections(part: str) -> list[str]:
    text = PAGE.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    return re.findall(r"^### (.+)$", text, re.MULTILINE)


def test_each_class_has_its_section_on_its_branch_and_no_section_is_of_a_class_that_is_gone() -> None:
    for part, branch in (("No verdict", errors.InfraError), ("Verdicts", errors.VerdictError)):
        listed = sections(part)
        assert len(listed) == len(set(listed))
        assert set(listed) == subclasses(branch)
    named = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.HarnessError)}
    branches = {errors.HarnessError, errors.InfraError, errors.VerdictError}
    assert {one.__name__ for one in named - branches} == set(sections("No verdict") + sections("Verdicts"))


def test_what_the_page_calls_a_warning_is_one() -> None:
    page = (REPOSITORY / "docs" / "writing-tests.md").read_text()
    assert "`HilWarning`" in page.partition("\n## Warnings and")[2] and issubclass(errors.HilWarning, Warning)
