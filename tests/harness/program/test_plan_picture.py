"""The picture of a memory plan shows each tensor's bytes for as long as they are held, and is well-formed SVG."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from cortex_m_hil.errors.text import number_text
from cortex_m_hil.program.plan_picture import plan_svg, tensors
from cortex_m_hil.program.program import Program
from paths import REPOSITORY

SEEDS = sorted((REPOSITORY / "tests" / "fuzz_seeds").glob("*.pte"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=SEEDS, ids=lambda path: path.stem)
def program(request: pytest.FixtureRequest) -> Program:
    path: Path = request.param
    return Program.from_bytes(path.read_bytes(), path.name, "encode" if path.stem == "methods" else "")


def test_tensors_are_shown_while_their_bytes_are_held(program: Program) -> None:
    shown = tensors(program)
    for position in range(-1, len(program.file.instructions)):
        extents = map(program.lifetimes.extent, program.lifetimes.in_use(position))
        held = [one for one in shown if one.first <= position <= one.last]
        assert {one.extent for one in held} == {one for one in extents if one}
        assert {one.value for one in held} <= set(program.lifetimes.in_use(position))


def test_a_peak_lasts_while_as_many_bytes_are_held(program: Program) -> None:
    peak = program.lifetimes.peak()
    held = [sum(program.lifetimes.bytes_in_use(at).values()) for at in range(-1, len(program.file.instructions))]
    lasts = held[peak.instruction + 1 : peak.last + 2]
    assert lasts and set(lasts) == {peak.nbytes} == {max(held)}


def test_the_picture_is_svg_with_a_labelled_rectangle_for_each_tensor(program: Program) -> None:
    root = ElementTree.fromstring(plan_svg(program))
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert root.tag == f"{SVG}svg" and len(titles) == len(tensors(program))
    for one, title in zip(tensors(program), titles, strict=True):
        assert (
            f"{number_text(one.extent.end - one.extent.begin)} bytes at {number_text(one.extent.begin)}, from " in title
        )
    peak = program.lifetimes.peak()
    assert any(f"peak (red): {number_text(peak.nbytes)} bytes" in (text.text or "") for text in root.iter(f"{SVG}text"))


def test_names_from_a_file_are_text_and_no_markup() -> None:
    [path] = (one for one in SEEDS if one.stem == "linear")
    picture = plan_svg(Program.from_bytes(path.read_bytes(), "<script>\x1b&.pte"))
    assert "<script>" not in picture and "\x1b" not in picture
    ElementTree.fromstring(picture)


def test_the_picture_of_the_docs_is_made_of_a_program_of_these_tests() -> None:
    """`hil inspect size tests/fuzz_seeds/images.pte --plan docs/images/plan.svg` makes it anew."""
    [path] = (one for one in SEEDS if one.stem == "images")
    shown = (REPOSITORY / "docs" / "images" / "plan.svg").read_text()
    assert shown == plan_svg(Program.from_bytes(path.read_bytes(), path.name))
