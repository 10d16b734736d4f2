"""What a release of distributed records and raises: events, classes, exceptions with their texts.

Read from source, as `templates` reads its messages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from attrs import frozen
from templates import Template, strings, template_of

#: A value: its shape where the source has it; None where it is computed.
Value = Template | None
#: What the name of a class of exceptions ends with.
_OF_ERRORS = re.compile(r"(?:Error|Exception|Warning|Cancelled)$")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@frozen(kw_only=True)
class LoggedEvent:
    """An event that the scheduler is told to keep (``log_event``)."""

    #: Topics it is kept under; None is one that is computed, such as a worker's address.
    topics: tuple[Value, ...]
    #: Its fields; None where the source does not show what it says.
    fields: tuple[tuple[str, Value], ...] | None = None


@frozen
class ExceptionClass:
    """A class of exceptions."""

    name: str


@frozen
class RaisedException:
    """An exception with a text: given where it is raised by name, or of the class's own."""

    type: str
    text: Template

    @property
    def as_last_line(self) -> Template:
        """The last line of its traceback."""
        return (f"{self.type}: {self.text[0]}", *self.text[1:])


SourceEvent = LoggedEvent | ExceptionClass | RaisedException


@lru_cache(maxsize=4096)  # most modules are the same in neighbouring releases
def events_of_source(source: str) -> frozenset[SourceEvent]:
    """What one module records, defines and raises."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # ``async`` as a name, before Python 3.7
        return frozenset()
    return frozenset(_events(tree))


def _events(tree: ast.Module) -> Iterator[SourceEvent]:
    errors: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name, bases=bases):
                if any((base := _last_name(each)) in errors or _OF_ERRORS.search(base) for each in bases):
                    errors.add(name)
                    yield ExceptionClass(name)
                    yield from (RaisedException(name, each) for each in strings(node))
            case ast.Raise(exc=ast.Call(func=function, args=[text, *_])):
                if template := template_of(text):
                    yield RaisedException(_last_name(function), template)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _logged_events(node)


def _logged_events(function: _Function) -> Iterator[LoggedEvent]:
    """The events of one function: those it logs, and that which ``to_event`` returns to be logged."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=called, args=args, keywords=keywords) if _last_name(called).endswith("log_event"):
                named = {each.arg: each.value for each in keywords}
                topic = args[0] if args else named.get("topic")
                message = args[1] if len(args) > 1 else named.get("msg")
            case ast.Return(value=ast.Tuple(elts=[topic, message])) if function.name == "to_event":
                pass
            case _:
                continue
        topics = _topics(topic)
        for fields in _messages(message, function):
            if any(topics) or fields:  # else it only passes on what it is given
                yield LoggedEvent(topics=topics, fields=fields)


def _topics(node: ast.expr | None) -> tuple[Value, ...]:
    if isinstance(node, ast.List | ast.Tuple):
        return tuple(template_of(each) for each in node.elts)
    return (template_of(node) if node else None,)


def _messages(node: ast.expr | None, function: _Function) -> Iterator[tuple[tuple[str, Value], ...] | None]:
    """The fields of a message, once for each way in which *function* makes it."""
    known = False
    for made in _origins(node, function):
        if (fields := _fields(made)) is not None:
            known = True
            later = _set_later(node, function) if isinstance(node, ast.expr) else {}
            yield tuple(sorted({**fields, **later}.items(), key=lambda each: each[0]))
    if not known:
        yield None


def _origins(node: ast.expr | None, function: _Function) -> Iterator[ast.expr]:
    """What *node* stands for: itself, or what is assigned to it in *function*."""
    match node:
        case ast.Name(id=name):
            yield from _assigned(name, function)
        case ast.Call(func=ast.Attribute(value=copied, attr="copy")):
            yield from _origins(copied, function)
        case ast.Call(args=args) if not _is_dict_call(node):
            yield from (each for each in args if isinstance(each, ast.Dict))  # merge({...}, more)
        case ast.expr():
            yield node


def _assigned(name: str, function: _Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                yield value


def _fields(node: ast.expr) -> Mapping[str, Value] | None:
    match node:
        case ast.Dict(keys=keys, values=values):
            return {
                key.value: template_of(value)
                for key, value in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
        case ast.Call(keywords=keywords) if _is_dict_call(node):
            return {each.arg: template_of(each.value) for each in keywords if each.arg}
        case _:
            return None


def _set_later(node: ast.expr, function: _Function) -> Mapping[str, Value]:
    """Fields that *function* adds by ``message["field"] = value``."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return dict(_assigned_items(ast.walk(function), names)) if not isinstance(node, ast.Dict) else {}


def _assigned_items(nodes: Iterable[ast.AST], names: set[str]) -> Iterator[tuple[str, Value]]:
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value):
                if name in names and isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, template_of(value)


def _is_dict_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) == "dict"


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
