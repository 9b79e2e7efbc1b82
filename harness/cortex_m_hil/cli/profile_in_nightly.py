"""The profile of a program in a stored nightly, for `hil profile --against`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cortex_m_hil.campaigns import store
from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import KIND, profiles_in
from cortex_m_hil.cli.campaigns import opened
from cortex_m_hil.diagnose.profile import Profile, unpack
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted

_SEPARATOR: Final = "::"  # between a nightly and the test whose program is meant, as in last~1::test_keywords
_LAST: Final = re.compile(rf"{nights.LAST}(~\d+)?")
_SHOWN: Final = 5  # tests that a message names


@dataclass(frozen=True)
class _OfTest:
    """A profile that a nightly keeps, and the id of its test without the target."""

    test: str
    profile: Profile

    @property
    def work(self) -> tuple[tuple[object, ...], ...]:
        """Return what the program computes, call by call: equal for programs that are the same, whatever they cost."""
        return tuple(
            (row.module, row.operator, row.macs, row.bytes_read, row.bytes_written) for row in self.profile.rows
        )

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(row.module for row in self.profile.rows if row.module)


def is_nightly(word: str, file: Path | None) -> bool:
    """Tell whether a word of --against names a nightly: `last~1`, a number or name in the store, or `…::TEST`."""
    if _SEPARATOR in word or _LAST.fullmatch(word):
        return True
    if not (file or store.default_file()).exists():
        return False
    with opened(file) as kept:
        return any(word in (str(one.ordinal), one.name) for one in kept.campaigns(KIND))


def profile_in_nightly(word: str, file: Path | None, mine: Profile) -> Profile:
    """Return the profile of a program in a nightly, on the target and runtime of `mine`; its name says which it is.

    Without a test in `word` it is that of the program that does the same work as `mine`, or else has its name or its
    modules.

    Raises:
        ConfigError: there is no such nightly, it keeps no such profile, or several that differ.
    """
    named, _, test = word.partition(_SEPARATOR)
    with opened(file) as kept:
        campaign = nights.find(kept, named)
        runs = kept.runs(campaign)
    where, place = f"nightly {campaign.ordinal}", f"{mine.ran.target} with {mine.ran.runtime}"
    every = [_OfTest(test_id, unpack(one, where)) for test_id, packed in profiles_in(runs) for one in packed]
    here = [one for one in every if _place(one.profile) == place]
    _require(word, every, here, f"{where} keeps", place)
    found = _of_program(here, mine, test)
    if len({one.work for one in found}) != 1:
        what = f"{counted(len(found), 'program')} on {place} that may be {mine.program}" if found else (
            f"no program on {place} that does the work of {mine.program}, or has its name or modules"
        )  # fmt: skip
        raise ConfigError(f"--against {word}: {where} has {what}", hint=_tests_to_name(named, found or here))
    same = next((one for one in found if one.profile.inputs_digest == mine.inputs_digest), found[0])
    return replace(same.profile, program=f"{where}, {same.test}: {same.profile.program}")


def _place(profile: Profile) -> str:
    return f"{profile.ran.target} with {profile.ran.runtime}"


def _require(word: str, every: Sequence[_OfTest], here: Sequence[_OfTest], where: str, place: str) -> None:
    """Raise ConfigError where a nightly keeps no profile at all, or none of the target and runtime."""
    if not every:
        why = "an earlier hil ran it, or no program passed on a target that counts"
        hint = "hil results compare has sums by operator of two nightlies; the next hil nightly keeps both"
        raise ConfigError(f"--against {word}: {where} no figures of single calls: {why}", hint=hint)
    if not here:
        places = ", ".join(dict.fromkeys(_place(one.profile) for one in every))
        what = f"{where} profiles of {places}, and none of {place}"
        raise ConfigError(f"--against {word}: {what}", hint="--target and --runtime as they were then")


def _of_program(known: Sequence[_OfTest], mine: Profile, test: str) -> list[_OfTest]:
    """Return the profiles that may be of the same program as `mine`: of equal work, or else of its name or modules.

    With a part of a test's id the profiles are of such tests; where none of these is alike, all of them may be.
    """
    of_test = [one for one in known if test in one.test]
    model = _OfTest("", mine)
    equal = [one for one in of_test if one.work == model.work]
    alike = [one for one in of_test if one.profile.program == mine.program or one.modules == model.modules != set()]
    return equal or alike or (of_test if test else [])


def _tests_to_name(named: str, found: Sequence[_OfTest]) -> str:
    tests = list(dict.fromkeys(one.test for one in found))
    more = ", …" if len(tests) > _SHOWN else ""
    return f"{named}{_SEPARATOR}TEST, with a part of the id of one of its tests: {', '.join(tests[:_SHOWN])}{more}"
