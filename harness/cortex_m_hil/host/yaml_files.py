"""Reads YAML files strictly: with limits of size and depth, and with file and line in each error."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent

from cortex_m_hil.errors import ConfigError, did_you_mean, is_pytests_own
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host import files

# Reading a file at one of the limits takes about a second. A farm of a hundred boards needs a tenth of each limit.
YAML_LIMIT = 128 << 10  # bytes of a file at most at most
NODE_LIMIT = 5000  # values in a file at most, with aliases expanded
DEPTH_LIMIT = 20


def parse(path: Path, hint: str) -> CommentedMap:
    """Return the mapping in a YAML file.

    Args:
        path: the file.
        hint: the hint of the error if the file is no mapping.

    Raises:
        ConfigError: the file cannot be read, or is no valid YAML mapping; the message has file and line.
    """
    try:
        text = files.read(path, YAML_LIMIT).decode("utf-8-sig")
        tree = _load(text)
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text", hint="save it as UTF-8; is it the right file?") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        problem, hint = _syntax_message(str(error.problem).strip().splitlines()[0])
        raise ConfigError(f"{path}{line}: {problem}", hint=hint) from error
    except YAMLError as error:
        raise ConfigError(f"{path}: {error}", hint="correct the YAML") from error
    except Exception as error:  # ruamel.yaml does not catch ValueError, RecursionError and others of its constructors
        if is_pytests_own(error):
            raise
        raise ConfigError(f"{path}: {error or type(error).__name__}", hint="correct the YAML") from error
    if not isinstance(tree, CommentedMap):
        raise ConfigError(f"{path}:1: expected a mapping at the top", hint=hint)
    return tree


def _syntax_message(problem: str) -> tuple[str, str]:
    """Translate a ruamel.yaml syntax error into a plain message and a hint."""
    if "'\\t'" in problem:
        return "a tab in the indentation", "indent with spaces"
    if problem.startswith("expected <block end>"):
        return "this line is indented unlike its neighbours", "indent keys of one mapping alike"
    if duplicate := re.match(r'found duplicate key "([^"]*)"', problem):
        return f"duplicate key {duplicate[1]!r}", "rename or delete one of the two"
    return problem, "correct the YAML"


class _BoundedComposer(Composer):
    """A composer that stops at the first node beyond NODE_LIMIT or DEPTH_LIMIT.

    An alias counts as all nodes that it expands to. Text that a command line cannot contain is refused, too.
    """

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._nodes = 0
        self._level = 0
        self._expanded: dict[str, int] = {}  # the number of nodes of each anchor whose node is complete

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        before, anchor = self._nodes, event.anchor
        if isinstance(event, AliasEvent):
            self._nodes += self._expanded.get(anchor, 1)
        else:
            self._nodes += 1
            self._expanded.pop(anchor, None)
        problem = self._problem(event)
        if problem:
            raise MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        if anchor is not None and not isinstance(event, AliasEvent):
            self._expanded[anchor] = self._nodes - before
        return node

    def _problem(self, event: Any) -> str:
        if self._nodes > NODE_LIMIT:
            return f"more than {NODE_LIMIT} values, aliases expanded"
        if self._level > DEPTH_LIMIT:
            return f"more than {DEPTH_LIMIT} levels"
        if isinstance(event, AliasEvent):
            within = event.anchor in self.anchors and event.anchor not in self._expanded
            return f"alias *{event.anchor} within its own anchor" if within else ""
        return _text_problem(event.value) if isinstance(event, ScalarEvent) else ""


@functools.lru_cache(maxsize=128)
def _load(text: str) -> Any:
    """Return the content of a YAML text: the same object each time, since each loading of targets reads all boards."""
    yaml = YAML(typ="rt")
    yaml.Composer = _BoundedComposer
    return yaml.load(text)


def _text_problem(value: str) -> str:
    """Return why a text cannot be a word of a command, a path or a name; "" if it can."""
    if "\0" in value:
        return "a NUL within text"
    return "a lone surrogate within text" if any("\ud800" <= one <= "\udfff" for one in value) else ""


def validate(model: type[Any], tree: CommentedMap, path: Path, examples: str) -> Any:
    """Return the content of a file as an instance of a pydantic class.

    Args:
        model: the class.
        tree: the content, as `parse` returned it.
        path: the file.
        examples: where to find examples, for the hint.

    Raises:
        ConfigError: the content does not fit; the message has file and line.
    """
    return validate_at((), model, plain(tree), tree, path, examples)


def validate_at(
    place: tuple[str, ...], model: type[Any], value: Any, tree: CommentedMap, path: Path, examples: str
) -> Any:
    """Return a value within a file as an instance of a pydantic class.

    Args:
        place: the keys that lead to the value.
        model: the class.
        value: the value, in plain types.
        tree: the content of the whole file, as `parse` returned it.
        path: the file.
        examples: where to find examples, for the hint.

    Raises:
        ConfigError: the value does not fit; with file and line.
    """
    try:
        return model.model_validate(value)
    except RecursionError:
        raise ConfigError(
            f"{path}: an alias within its own anchor", hint="write out what the alias stands for"
        ) from None
    except ValidationError as error:
        worst = worst_of(error)
        location, line = locate(tree, (*place, *worst["loc"]))
        if worst["type"] == "extra_forbidden":
            known = _fields_at(model, location[len(place) : -1])
            message = f"unknown key {location[-1]!r}"
            hint = did_you_mean(location[-1], known)
            if len(location) == 1 and isinstance(worst["input"], dict) and "cpu" in worst["input"]:
                hint = "targets stand below a line targets:, and are indented"
            raise ConfigError(f"{path}:{line}: {message}", hint=hint) from None
        if worst["type"] == "missing":
            key = str(worst["loc"][-1])
            problem, hint = f"{'.'.join([*location, key])}: missing", f"add {key}: …; {examples}"
        else:
            problem, hint = f"{'.'.join(location)}: {_value_message(worst)}", f"correct this value; {examples}"
        raise ConfigError(f"{path}:{line}: {problem}", hint=hint) from None


def worst_of(error: ValidationError) -> Any:
    """Return the error to show.

    The deepest error is about the intended member of a union; an unknown key explains a missing one.
    """
    return max(error.errors(), key=lambda one: (len(one["loc"]), one["type"] == "extra_forbidden"))


_WANTED = {"dict_type": "a mapping", "model_type": "a mapping", "string_type": "text", "list_type": "a list"}


def _value_message(error: Any) -> str:
    """Return pydantic's message about a value in the terms of YAML."""
    wanted = _WANTED.get(error["type"])
    if wanted is None and not error["msg"].startswith("Input should be "):
        return str(error["msg"])
    given = "nothing" if error["input"] is None else shown(error["input"])
    return f"has to be {wanted or error['msg'].removeprefix('Input should be ')}, not {given}"


def plain(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    if isinstance(node, bool) or node is None:
        return node
    return int(node) if isinstance(node, int) else str(node) if isinstance(node, str) else node


def locate(tree: Any, location: Iterable[int | str]) -> tuple[list[str], int]:
    """Return the keys of `location` that are in the file, without pydantic's names of union members, and their line."""
    found: list[str] = []
    line = 1
    for part in location:
        if (isinstance(tree, CommentedMap) and part in tree) or (
            isinstance(tree, CommentedSeq) and isinstance(part, int) and part < len(tree)
        ):
            place = (tree.lc.data or {}).get(part)  # a key that comes from a merge (<<) has no line
            line = int(place[0]) + 1 if place else line
            found.append(str(part))
            tree = tree[part]
    return found, line


def _fields_at(model: type[BaseModel], location: list[str]) -> Iterable[str]:
    """Return the keys that a mapping at `location` may have."""
    for part in location:
        field = model.model_fields.get(part)
        model = next(_models_in(field.annotation), model) if field else model
    return model.model_fields


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
