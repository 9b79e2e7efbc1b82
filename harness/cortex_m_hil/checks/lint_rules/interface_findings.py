"""Rules on a program's outputs, and on the state that it keeps between calls."""

from __future__ import annotations

from collections.abc import Iterator

from cortex_m_hil.checks.lint_rules.finding import LintFinding, LintSubject, Rule
from cortex_m_hil.program.schema import ValueKind


def outputs(subject: LintSubject) -> Iterator[LintFinding]:
    for number, index in enumerate(subject.file.outputs):
        if (value := subject.file.values[index]).spec is None:
            is_none = "None" if value.kind is ValueKind.NULL else f"a {value.kind.value}"
            yield LintFinding(
                Rule.OUTPUT, f"output {number} is {is_none}, and outputs are tensors and numbers", value=index
            )


def state(subject: LintSubject) -> Iterator[LintFinding]:
    """Yield a note about the state that the program keeps: each run begins anew, a stream keeps it."""
    file, names = subject.file, subject.program.state_names
    if not file.states:
        return
    found = []
    for number, index in enumerate(file.states):
        name, value = names[number] if names else f"value {index}", file.values[index]
        unset = "" if value.initial is not None else ", without an initial value: it begins with zeros here"
        found.append(f"{name}, {value.spec}{unset}")
    nbytes = sum(spec.nbytes for index in file.states if (spec := file.values[index].spec) is not None)
    yield LintFinding(Rule.STATE_NOTE, f"the program has state, {nbytes} bytes: {'; '.join(found)}")
