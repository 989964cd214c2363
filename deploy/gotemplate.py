"""The subset of Go templates that the chart keeps to, so that it can be rendered without Helm.

    {{ .Values.a.b }}  {{ .Release.Name }}  {{ .Chart.AppVersion }}  {{ $x := .a }}  {{ $x }}
    {{ if a }} {{ else if b }} {{ else }} {{ end }}  {{ with a }}  {{ range a }}
    {{ range $k, $v := a }}  {{ define "name" }}  {{ include "name" . }}  {{- trimming -}}
    {{/* comment */}}, numbers, "texts", (parentheses), and pipelines of the functions below;
    .Files.Get "path"

Anything else is an error here: what is tested is what Helm does.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-)?\s*(.*?)\s*(-)?\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|\||:=|,|[^\s()|,:]+(?::(?!=)[^\s()|,]*)?')


class TemplateError(Exception):
    """The template uses what is not in the subset, or asks for a value that is missing."""


class _Scope:
    """Names that a template sees: the dot, and variables."""

    def __init__(self, dot: Any, variables: dict[str, Any]) -> None:
        self.dot, self.variables = dot, variables

    def inner(self, dot: Any, **variables: Any) -> "_Scope":
        return _Scope(dot, self.variables | variables)


Node = tuple[Any, ...]


class Chart:
    """A chart on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.meta: dict[str, Any] = yaml.safe_load((root / "Chart.yaml").read_text())
        self.values: dict[str, Any] = yaml.safe_load((root / "values.yaml").read_text())
        self.schema: dict[str, Any] = json.loads((root / "values.schema.json").read_text())
        self._defined: dict[str, list[Node]] = {}

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        name: str = "brain",
        namespace: str = "brain",
    ) -> list[dict[str, Any]]:
        """The chart's objects for ``values`` over its own, in the order of its files."""
        return [obj for text in self.texts(values, name, namespace) for obj in _objects(text)]

    def text(self, template: str) -> str:
        """A text rendered with the chart's own values and definitions."""
        list(self.texts(None, "brain", "brain"))
        root = self._root(None, "brain", "brain")
        return self._run(_parse(template), _Scope(root, {"$": root}))

    def _root(self, values: Mapping[str, Any] | None, name: str, namespace: str) -> dict[str, Any]:
        return {
            "Values": merged(self.values, values or {}),
            "Release": {"Name": name, "Namespace": namespace, "Service": "Helm"},
            "Chart": {key[:1].upper() + key[1:]: value for key, value in self.meta.items()},
        }

    def texts(self, values: Mapping[str, Any] | None, name: str, namespace: str) -> Iterator[str]:
        """Each rendered template."""
        root = self._root(values, name, namespace)
        files = sorted((self.root / "templates").glob("*.[yt][ap]*l"))
        trees = {file: _parse(file.read_text()) for file in files}
        for tree in trees.values():
            self._defined |= {node[1]: node[2] for node in tree if node[0] == "define"}
        for file, tree in trees.items():
            try:
                yield self._run(tree, _Scope(root, {"$": root}))
            except TemplateError as bad:
                raise TemplateError(f"{file.name}: {bad}") from bad

    def file(self, path: str) -> str:
        """``.Files.Get``."""
        return (self.root / path).read_text()

    def _run(self, nodes: list[Node], scope: _Scope) -> str:
        return "".join(self._one(node, scope) for node in nodes)

    def _one(self, node: Node, scope: _Scope) -> str:
        match node:
            case ("text", str(text)):
                return text
            case ("define", *_):
                return ""
            case ("set", name, words):
                scope.variables[name] = self._value(words, scope)
                return ""
            case ("print", words):
                return _text(self._value(words, scope))
            case ("if", branches):
                for words, body in branches:
                    if words is None or self._value(words, scope):
                        return self._run(body, scope)
                return ""
            case ("with", words, body, other):
                value = self._value(words, scope)
                return self._run(body, scope.inner(value)) if value else self._run(other, scope)
            case ("range", names, words, body, other):
                return self._range(names, self._value(words, scope), body, other, scope)
        raise TemplateError(f"{node[0]} is not in the subset")

    def _range(
        self, names: list[str], value: Any, body: list[Node], other: list[Node], scope: _Scope
    ) -> str:
        if not value:
            return self._run(other, scope)
        pairs = sorted(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
        parts = []
        for key, inner in pairs:
            told = dict(zip(names, (key, inner) if len(names) == 2 else (inner,), strict=False))
            parts.append(self._run(body, scope.inner(inner, **told)))
        return "".join(parts)

    def _value(self, words: list[str], scope: _Scope) -> Any:
        value, first = None, True
        for part in _split(words, "|"):
            value = self._call(part, scope, [] if first else [value])
            first = False
        return value

    def _call(self, words: list[str], scope: _Scope, piped: list[Any]) -> Any:
        terms = list(self._terms(words, scope))
        if not terms:
            raise TemplateError("an empty pipeline")
        head, rest = terms[0], terms[1:]
        if isinstance(head, str) and head.startswith("\0"):
            return self._function(head[1:], [*rest, *piped], scope)
        if rest or piped:
            raise TemplateError(f"{' '.join(words)} is no function call")
        return head

    def _terms(self, words: list[str], scope: _Scope) -> Iterator[Any]:
        """Values of the words; a function's name comes as its name after a NUL."""
        index = 0
        while index < len(words):
            word = words[index]
            if word == "(":
                end = _closing(words, index)
                yield self._value(words[index + 1 : end], scope)
                index = end
            else:
                yield self._term(word, scope)
            index += 1

    def _term(self, word: str, scope: _Scope) -> Any:
        if word.startswith('"'):
            return json.loads(word)
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if word in ("true", "false"):
            return word == "true"
        if word.startswith("$"):
            name, _, path = word.partition(".")
            if name not in scope.variables:
                raise TemplateError(f"{name} is not set")
            return _at(scope.variables[name], path)
        if word == ".":
            return scope.dot
        if word == ".Files.Get":
            return "\0.Files.Get"
        if word.startswith("."):
            return _at(scope.dot, word[1:])
        return "\0" + word

    def _function(self, name: str, given: list[Any], scope: _Scope) -> Any:
        if name == "include":
            body = self._defined.get(given[0])
            if body is None:
                raise TemplateError(f"{given[0]} is not defined")
            return self._run(body, _Scope(given[1], {"$": given[1]}))
        if name == ".Files.Get":
            return self.file(given[0])
        if name not in _FUNCTIONS:
            raise TemplateError(f"{name} is not in the subset")
        return _FUNCTIONS[name](*given)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """``other`` over ``one``, as Helm merges values: maps inwards, null removes."""
    result = dict(one)
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def _required(message: str, value: Any) -> Any:
    if value in (None, ""):
        raise TemplateError(message)
    return value


def _fail(message: str) -> Any:
    raise TemplateError(message)


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=True, width=1000).removesuffix("\n...\n").rstrip("\n")


def _indent(count: int, text: str) -> str:
    return "\n".join(" " * count + line for line in text.split("\n"))


def _quote(value: Any) -> str:
    return json.dumps(_text(value))


def _and(*values: Any) -> Any:
    return next((value for value in values if not value), values[-1])


def _or(*values: Any) -> Any:
    return next((value for value in values if value), values[-1])


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "default": lambda fallback, value=None: value or fallback,
    "quote": _quote,
    "toYaml": _to_yaml,
    "indent": _indent,
    "nindent": lambda count, text: "\n" + _indent(count, text),
    "eq": lambda one, *others: one in others,
    "ne": lambda one, other: one != other,
    "not": lambda value: not value,
    "and": _and,
    "or": _or,
    "printf": lambda form, *values: form % tuple(_text(value) for value in values),
    "required": _required,
    "fail": _fail,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda count, text: text[:count],
    "int": int,
    "upper": lambda text: text.upper(),
    "toString": lambda value: _text(value),
    "join": lambda by, values: by.join(_text(value) for value in values),
    "list": lambda *values: list(values),
}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _at(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise TemplateError(f"nothing has {path}")
        value = value.get(name)
    return value


def _parse(text: str) -> list[Node]:
    tokens = list(_tokens(text))
    nodes, rest = _body(tokens, 0, ())
    if rest != len(tokens):
        raise TemplateError(f"{tokens[rest]} belongs to nothing")
    return nodes


def _tokens(text: str) -> Iterator[tuple[str, Any]]:
    position, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[position : found.start()]
        before = before.lstrip() if trim else before
        yield "text", before.rstrip() if found[1] else before
        position, trim = found.end(), bool(found[3])
        if not found[2].startswith("/*"):
            words = _WORD.findall(found[2])
            if re.sub(r"\s", "", "".join(words)) != re.sub(r"\s", "", found[2]):
                raise TemplateError(f"{found[0]} cannot be read")
            yield "action", words
    yield "text", text[position:].lstrip() if trim else text[position:]


def _body(
    tokens: list[tuple[str, Any]], index: int, ends: tuple[str, ...]
) -> tuple[list[Node], int]:
    nodes: list[Node] = []
    while index < len(tokens):
        kind, told = tokens[index]
        if kind == "action" and told[0] in ("end", "else"):
            if told[0] not in ends:
                raise TemplateError(f"{told[0]} belongs to nothing")
            return nodes, index
        node, index = _node(tokens, index)
        nodes.append(node)
    if ends:
        raise TemplateError("an action is never ended")
    return nodes, index


def _node(tokens: list[tuple[str, Any]], index: int) -> tuple[Node, int]:
    kind, told = tokens[index]
    if kind == "text":
        return ("text", told), index + 1
    match told:
        case ["if", *words]:
            return _if(tokens, index, words)
        case ["define", name]:
            body, index = _body(tokens, index + 1, ("end",))
            return ("define", json.loads(name), body), index + 1
        case ["with", *words]:
            body, other, index = _block(tokens, index)
            return ("with", words, body, other), index
        case ["range", *words]:
            names, words = _names(words)
            body, other, index = _block(tokens, index)
            return ("range", names, words, body, other), index
        case [name, ":=", *words]:
            return ("set", name, words), index + 1
    return ("print", told), index + 1


def _if(tokens: list[tuple[str, Any]], index: int, words: list[str]) -> tuple[Node, int]:
    branches: list[tuple[list[str] | None, list[Node]]] = []
    test: list[str] | None = words
    while True:
        body, index = _body(tokens, index + 1, ("end", "else"))
        branches.append((test, body))
        told = tokens[index][1]
        if told[0] == "end":
            return ("if", branches), index + 1
        test = told[2:] if told[1:2] == ["if"] else None


def _block(tokens: list[tuple[str, Any]], index: int) -> tuple[list[Node], list[Node], int]:
    body, index = _body(tokens, index + 1, ("end", "else"))
    other: list[Node] = []
    if tokens[index][1][0] == "else":
        other, index = _body(tokens, index + 1, ("end",))
    return body, other, index + 1


def _names(words: list[str]) -> tuple[list[str], list[str]]:
    if ":=" not in words:
        return [], words
    at = words.index(":=")
    return [word for word in words[:at] if word != ","], words[at + 1 :]


def _split(words: list[str], by: str) -> Iterator[list[str]]:
    part: list[str] = []
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if word == by and depth == 0:
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _closing(words: list[str], start: int) -> int:
    depth = 0
    for index in range(start, len(words)):
        depth += {"(": 1, ")": -1}.get(words[index], 0)
        if depth == 0:
            return index
    raise TemplateError("a parenthesis is never closed")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for document in re.split(r"^---\s*$", text, flags=re.MULTILINE):
        found = yaml.load(document, Loader=yaml.CSafeLoader)
        if found:
            yield found
