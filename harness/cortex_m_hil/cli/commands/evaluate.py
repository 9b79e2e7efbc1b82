"""The command `hil evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.evaluation.accuracy import ClassRow
from cortex_m_hil.campaigns.evaluation.data_sets import DataSet, Raw, check_path, read_data_set
from cortex_m_hil.campaigns.evaluation.evaluation import (
    EvaluatedModel,
    Evaluation,
    EvaluationPlan,
    Job,
    ModelTask,
    count_saturation,
    jobs_of,
    task_of,
)
from cortex_m_hil.campaigns.evaluation.evaluation_report import SOURCE_NAMES, EvaluationReport, Results, Thresholds
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.checks.comparison.comparison_result import quanta_word
from cortex_m_hil.checks.input_checks import InputQuantizer
from cortex_m_hil.checks.left_in_float import left_in_float
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.campaigns import Campaign, CampaignOptions
from cortex_m_hil.cli.command_output import Answer, hint_for_commands, json_fields, say, write_answer
from cortex_m_hil.cli.option_names import options_named, refused_by_lint
from cortex_m_hil.cli.options import (
    EvaluatedOptions,
    Known,
    NoLint,
    QuantizeInputs,
    SeveralTargets,
    TargetOptions,
    accepted_on_command_line,
    within,
)
from cortex_m_hil.cli.program_files import ModelArgument, check_model
from cortex_m_hil.cli.progress import status
from cortex_m_hil.cli.run_result_output import TARGET_FIELDS, fields_of_target, label_of
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError, VerdictError
from cortex_m_hil.errors.text import counted, shown
from cortex_m_hil.flow import judge_on_executorch
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.resolve import Resolved

KIND: Final = "evaluate"
LARGEST: Final = 1e9  # the largest value of --scale


@dataclass(frozen=True)
class ThresholdOptions:
    """The options for thresholds that a target has to meet."""

    min_top1: Annotated[
        float | None,
        typer.Option("--min-top1", metavar="SHARE", callback=within(0, 1), help="Required share of right answers"),
    ] = None
    min_auc: Annotated[
        float | None,
        typer.Option("--min-auc", metavar="AREA", callback=within(0, 1), help="Required area under the ROC curve"),
    ] = None
    max_false_accepts: Annotated[
        int | None,
        typer.Option("--max-false-accepts", metavar="N", min=0, help="Allowed number of detections without an event"),
    ] = None
    max_false_rejects: Annotated[
        int | None, typer.Option("--max-false-rejects", metavar="N", min=0, help="Allowed number of undetected events")
    ] = None
    negative: Annotated[
        str, typer.Option("--negative", metavar="CLASSES", help="Labels that count as 'no event', such as 0 or 10,11")
    ] = ""
    stream: Annotated[bool, typer.Option("--stream", help="Samples are windows of one stream, in order")] = False


@dataclass(frozen=True)
class SampleOptions:
    """The options that describe the data."""

    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="PATH",
            help="A folder with y_labels.csv (MLPerf Tiny's format, hil docs evaluate), or an .npz: inputs, labels",
        ),
    ]
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Evaluate only this many samples, evenly spread; 0: all")
    ] = 0
    raw: Annotated[
        str,
        typer.Option(
            "--raw",
            metavar="DTYPE",
            help="Type of a folder's raw files (MLPerf Tiny's format, hil docs evaluate): uint8, int8, float32",
        ),
    ] = ""
    scale: Annotated[
        float,
        typer.Option(
            "--scale",
            metavar="NUMBER",
            callback=within(-LARGEST, LARGEST),
            help="Scale of the data's integers: input = (integer - zero point) * scale",
        ),
    ] = 1.0
    zero_point: Annotated[
        int, typer.Option("--zero-point", metavar="N", min=-(1 << 31), max=(1 << 31) - 1, help="See --scale; an int32")
    ] = 0
    quantize: QuantizeInputs = False

    @property
    def meaning(self) -> Raw:
        """Return the dtype, scale and so on that give the data's numbers their meaning."""
        return Raw(self.raw, self.scale, self.zero_point, InputQuantizer(self.quantize))


LayoutOption = Annotated[
    str,
    typer.Option(
        "--layout",
        metavar="LAYOUT",
        help="Order of dimensions of a module's tensors: channels_last or explicit (hil docs lowering)",
    ),
]


@app.command(
    "evaluate",
    log=True,
    epilog=json_fields(
        {
            **TARGET_FIELDS,
            "lint": "with --no-lint, why lint would refuse the program, if it would; else null",
            "model": "the model, as in the call",
            "method": "the method, as in the call; empty if none was named",
            "data": "the data, as in the call",
            "task": "classes or anomaly",
            "input_note": "a note if integers of the data were converted to floats without a scale; else empty",
            "saturated": (
                "with --quantize-inputs, or of a module with --io int8, the share of the quantised values that "
                "saturated; else null"
            ),
            "outcome": "complete, under way, or ended early by an error",
            "samples": "how many samples are done",
            "left": "how many samples are left",
            "top1": (
                "by source (target; of a module also dialect, quantized and eager), the share of right answers; "
                "null for task anomaly, and if not defined"
            ),
            "auc": (
                "by source, the area under the ROC curve; null for task classes, and if not defined (for "
                "example only one class in the data)"
            ),
            "same_answers": "by reference, how many samples have the same answer",
            "max_quanta": "by reference, the largest difference of outputs, in quanta",
            "same_outputs": (
                "how many samples have the outputs of the target named first, bit for bit; null for that target"
            ),
            "classes": "of each label, count, right, predicted, recall, precision, as answered on the target",
            "events": "the number of events; null without --negative",
            "false_rejects": "the number of events that were not detected; null without --negative",
            "false_accepts": "the number of detections without an event; null without --negative",
            "collapse": (
                "for each source whose answers are nearly all one class: answer (that class), others (the number of "
                "samples of other classes), misclassified (how many of these were given that class)"
            ),
            "constant": "whether all outputs on the target are the same",
            "samples_per_second": "by the host's clock, without the references",
            "problems": "thresholds that are not met, and wrong outputs",
            "ended": "the error that ended it early; empty where none did",
        },
        each="each target",
    ),
)
def evaluate(
    model: ModelArgument,
    target: SeveralTargets,
    given: SampleOptions,
    wanted: ThresholdOptions,
    on: TargetOptions,
    led: CampaignOptions,
    of: EvaluatedOptions,
    layout: LayoutOption = "",
    no_lint: NoLint = False,
    known: Known = None,
) -> None:
    """Report the accuracy of a model on data, on each target.

    The float module, its quantised form and the dialect are run on the same samples. The same command resumes an
    evaluation that ended early. Exit status 1 where a target does not meet a threshold, or its outputs are wrong.
    """
    check_model(model)
    check_path(given.data)
    asked = Thresholds(**{**vars(wanted), "negative": _classes(wanted.negative)})
    choice, accepted = on.choose(target), accepted_on_command_line(known)
    resolved = {name: choice.resolve(name) for name in choice.names}
    with led.store() as kept:
        found = EvaluatedModel(model, layout, of.method, of.io_of(model))
        raw = given.meaning
        samples = read_data_set(given.data, found.taken, raw, given.limit, in_order=wanted.stream)
        jobs = _jobs(resolved, on, found, samples, linted=not no_lint)
        first = next(iter(jobs.values())).program
        task = task_of(first, samples)
        asked = asked.with_defaults(task, first.file.output_specs()[0].numel, samples.benchmark)
        plan = EvaluationPlan(
            model, str(given.data), len(samples.samples), samples.digest, {one: jobs[one].content for one in jobs}
        )
        _announce(found, layout, first, samples, raw)
        fields = plan.as_fields()
        campaign = Campaign.go_on(kept, KIND, fields, lambda one: one.plan == fields)
        with campaign.folder(), Evaluation(jobs, samples, task) as evaluation:
            runs = campaign.work(evaluation, Deadline.after(led.budget))
    reports = _reports(jobs, samples, task, asked, runs, has_references=found.has_references)
    reports = [replace(one, on_executorch=_on_executorch(jobs[one.target], accepted)) for one in reports]
    lint = {name: refused_by_lint(one.dut, one.program, linted=one.linted) for name, one in jobs.items()}
    asked_of = {"model": model, "method": of.method, "data": given.data}
    asked_of |= {"input_note": samples.input_note, "saturated": raw.quantizer.share}
    raise typer.Exit(_print_answers(reports, resolved, asked_of, lint))


def _announce(model: EvaluatedModel, layout: str, program: Program, samples: DataSet, raw: Raw) -> None:
    """Print a description of the evaluation; for a module also the operators left in float."""
    if model.has_references:
        count_saturation(program, samples, raw.quantizer)
    say(_heading(model, samples, raw))
    if model.has_references and (told := left_in_float(program, layout)):
        say(told)


def _on_executorch(job: Job, known: Sequence[int | str]) -> str:
    """Return a line if a job's program would fail on ExecuTorch; else ""."""
    try:
        if job.linted:
            judge_on_executorch(job.dut, job.program, known, known)
    except VerdictError as error:
        return f"{type(error).__name__}: {error.message}; {hint_for_commands(error.hint)}"
    return ""


def _print_answers(
    reports: Sequence[EvaluationReport], resolved: Mapping[str, Resolved], asked_of: Mapping[str, Any],
    lint: Mapping[str, str],
) -> int:  # fmt: skip
    """Print the answer for each target and the summary, and return the exit status."""
    answers = [_answer(one, resolved[one.target], asked_of, lint[one.target]) for one in reports]
    for one in answers:
        write_answer(one)
    say(_summary(asked_of["model"], reports, lambda name: resolved[name].target.isa))
    return max(one.status for one in answers)


def _jobs(
    resolved: Mapping[str, Resolved], on: TargetOptions, model: EvaluatedModel, data: DataSet, *, linted: bool
) -> dict[str, Job]:
    """Lower the model for each target, and return the jobs by the target's name."""
    with options_named(), status(f"{', '.join(resolved)}: lowering, and the runners, which may have to be built"):
        return jobs_of(list(resolved), lambda name: on.open(resolved[name]), model, data, linted=linted)


def _classes(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and len(word) < 9 for word in words):
        raise ConfigError(f"--negative {shown(text)}: classes are numbers from 0", hint="--negative 10,11")
    return tuple(map(int, words))


def _heading(model: EvaluatedModel, data: DataSet, raw: Raw) -> str:
    inputs = counted(len(data.calibration), "input")
    calibrated = f"{inputs} {'for that' if data.own_calibration else 'of the samples'}"
    how = f"calibrated with {calibrated}" if model.has_references else "a file: no references"
    heading = f"{model.name} on {counted(len(data.samples), 'sample')} of {data.name}, {how}"
    quantized = f"quantised: {raw.quantizer}" if raw.quantizer.values else ""
    return "\n".join(filter(None, (heading, data.input_note, quantized)))


# --- answers -------------------------------------------------------------------------------------------------


def _reports(
    jobs: Mapping[str, Job],
    data: DataSet,
    task: ModelTask,
    asked: Thresholds,
    runs: Sequence[Run],
    *,
    has_references: bool,
) -> list[EvaluationReport]:
    results = {name: Results.from_runs(name, runs, data.labels) for name in jobs}
    [first, *_] = results
    return [
        EvaluationReport(
            name, task, results[name], asked, data.differ, results[first] if name != first else None,
            not has_references and job.has_one_answer,
        )
        for name, job in jobs.items()
    ]  # fmt: skip


def _answer(report: EvaluationReport, resolved: Resolved, asked_of: Mapping[str, Any], lint: str) -> Answer:
    lines = [_headline(report, resolved), *_lines(report)]
    lines += [f"  lint         {lint}"] if lint else []
    lines += [f"  WRONG        {problem}" for problem in report.problems]
    lines += [f"  cannot tell  {report.unknown}"] if report.unknown else []
    lines += [report.results.ended] if report.results.ended and not report.results.infra else []
    fields = {**fields_of_target(resolved), **asked_of, **report.fields(), "lint": lint or None}
    return Answer.from_blocks(["\n".join([*lines, ""])], fields, bad=report.failed, unknown=report.unknown)


def _headline(report: EvaluationReport, resolved: Resolved) -> str:
    speed = f", {report.speed:.1f} a second" if report.speed is not None else ""
    return f"{label_of(resolved)}: {counted(len(report.results.labels), 'sample')}{speed}"


def _lines(report: EvaluationReport) -> Iterator[str]:
    total = len(report.results.labels)
    for source, same in report.same.items():
        quanta = report.max_quanta[source]
        apart = "" if quanta is None else f", at most {quanta} {quanta_word(quanta)} apart"
        count = "" if same is None else f"the same answer for {same} of {total}"
        yield f"  {SOURCE_NAMES[source]:<11}  {count}{apart}"
    if report.same_outputs is not None:
        yield f"  bit for bit  the outputs of the first target for {report.same_outputs} of {total}"
    if (found := report.detections) is not None:
        what = "occurrence" if report.asked.stream else "sample"
        rejects = f"{found.false_rejects} of {counted(found.events, what)} rejected"
        yield f"  detection    {rejects}, {counted(found.false_accepts, 'false accept')}"
    if report.classes:
        yield table(
            ("  class", "samples", "right", "recall", "predicted", "precision"), [_row(one) for one in report.classes]
        )


def _row(one: ClassRow) -> tuple[str, ...]:
    counts = f"  {one.label}", str(one.count), str(one.right)
    return *counts, _number(one.recall), str(one.predicted), _number(one.precision)


def _summary(model: str, reports: Sequence[EvaluationReport], isa_of: Callable[[str], Isa]) -> str:
    """Return a table of the accuracy by target and reference."""
    [first, *_] = reports
    sources = [source for source in reversed(SOURCE_NAMES) if any(source in one.accuracy for one in reports)]
    figure = "top-1" if first.task is ModelTask.CLASSES else "AUC"
    rows = []
    for one in reports:
        numbers = [_number(one.accuracy.get(source)) for source in sources]
        rows.append((model, one.target, isa_of(one.target).value, figure, *numbers))
    return table(("model", "target", "class", "", *(SOURCE_NAMES[source] for source in sources)), rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
