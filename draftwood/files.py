"""Output files, checked early and written atomically; the cache directory; JSON of dataclasses.

:func:`encode` turns frozen dataclasses into values that JSON holds, and :func:`decode` turns them
back: numbers, strings, ``None``, literals, tuples, lists, mappings and dataclasses of these, by the
annotations of the class. A mapping with string keys is an object, another one a list of pairs.
"""

import json
import math
import os
import stat
import sys
import tempfile
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from inspect import isabstract
from pathlib import Path
from types import GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast
from uuid import uuid4

from platformdirs import user_cache_path

from draftwood.errors import DraftwoodError

T = TypeVar("T")

CACHE_VARIABLE = "DRAFTWOOD_CACHE"
"""Environment variable that names another cache directory."""

PRIVATE = 0o600
"""Permissions of a new file that its owner alone may read."""

_SHARED = 0o666
"""Those of any other new file, before the umask."""

_STDOUT, _STDERR = 1, 2

UNWRITTEN: Mapping[str, bool] = MappingProxyType({"written": False})
"""``metadata`` of a dataclass field that JSON leaves out; the field needs a default."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number, both allowed: ``Annotated[float, Range(0, 1)]``."""

    least: float
    most: float = math.inf


Count: TypeAlias = Annotated[int, Range(0)]
"""An integer from 0 up."""


def encode(value: object) -> Any:
    """The value as JSON holds it. A number that is not finite is unknown: null."""
    if is_dataclass(value) and not isinstance(value, type):
        written = (f.name for f in fields(value) if f.metadata.get("written", True))
        return {name: encode(getattr(value, name)) for name in written}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: encode(item) for key, item in value.items()}
        return [[encode(key), encode(item)] for key, item in value.items()]
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decode(kind: type[T], plain: object, place: str = "") -> T:
    """The value of type ``kind`` that ``plain`` is the JSON form of: the inverse of :func:`encode`.

    Args:
        kind: a type as in an annotation.
        plain: parsed JSON. Unknown members of objects are ignored.
        place: name of the value in messages, such as ``"methods.ar"``.

    Raises:
        DraftwoodError: a value has another type or range, or a member is missing; the message
            begins with the place of the value.
    """
    return cast(T, _decoded(kind, plain, place))


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the user's cache directory.

    Attributes:
        kind: name of the directory that its kind has.
        path: its file or directory.
        about: what it is, in one line; empty if it cannot be read.
        size: bytes.
        changed: time of writing, seconds since the epoch.
    """

    kind: str
    path: Path
    about: str
    size: int
    changed: float


def cache_directory() -> Path:
    """``$DRAFTWOOD_CACHE``, or the user's cache directory."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else user_cache_path("draftwood", appauthor=False)


def public_name(name: str) -> str:
    """Name to publish for a model or file: a directory without its parents, any other unchanged."""
    return Path(name).name if Path(name).is_dir() else name


def write_json(path: Path, content: object) -> None:
    """Write a value as JSON, in the form of :func:`encode`, atomically."""
    write_text(path, json.dumps(encode(content), allow_nan=False, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """The parsed content of a JSON file.

    Raises:
        DraftwoodError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DraftwoodError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DraftwoodError(f"{path} is not JSON: {error}") from error


def check_writable(path: Path) -> None:
    """Check that a file can be written, before work is spent.

    The file is the one that a symbolic link leads to.

    Raises:
        DraftwoodError: the directory is missing or read-only, or the path is a directory or a
            read-only file.
    """
    if path.is_dir():
        raise DraftwoodError(f"{path} is a directory: name a file in it")
    if str(path) == "-":
        raise DraftwoodError("- is no file here: name /dev/stdout for standard output")
    if not is_stream(path):
        _check_directory(_followed(path).parent)
    if path.exists() and not os.access(path, os.W_OK):
        raise DraftwoodError(f"{path} is read-only: name another file")


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or a standard stream: it cannot be replaced or resumed."""
    other = path.exists() and not path.is_file() and not path.is_dir()
    return other or _standard(path) is not None


def check_apart(outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = ()) -> None:
    """Check that no output is an input or another output, before one is lost.

    Args:
        outputs: files to write; None is none. A stream may be named several times.
        inputs: files that are read, likewise; what is no file is not compared.

    Raises:
        DraftwoodError: two of them are one file.
    """
    read = {os.path.realpath(path) for path in inputs if path is not None and os.path.isfile(path)}
    written: set[str] = set()
    for path in outputs:
        if path is None or is_stream(path):
            continue
        place = os.path.realpath(path)
        if place in read:
            raise DraftwoodError(f"{path} is read, and would be overwritten: name another output")
        if place in written:
            raise DraftwoodError(f"{path} is named for two outputs: name a file for each")
        written.add(place)


def check_output(path: Path, inputs: Iterable[Path | str | None] = ()) -> None:
    """Check that a command's output can be written, and is none of its inputs.

    Raises:
        DraftwoodError: see :func:`check_writable` and :func:`check_apart`.
    """
    check_writable(path)
    check_apart([path], inputs)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text, as :func:`write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes, mode: int = _SHARED) -> None:
    """Write bytes atomically: a temporary file replaces the one that ``path`` leads to.

    A device or a pipe is written to.

    Args:
        path: of the file.
        content: of the file.
        mode: permissions of a new file; one that is replaced keeps its own.

    Raises:
        OSError: it cannot be written; its ``filename`` is ``path``.
    """
    with _named(path):
        if is_stream(path):
            _pour(path, content)
        else:
            _replace(_followed(path), content, mode)


def append(path: Path, content: bytes, mode: int = _SHARED) -> None:
    """Write at the end of a file, which need not exist; it is on the disk on return.

    Args:
        path: of the file.
        content: to write there.
        mode: permissions of a new file.

    Raises:
        OSError: it cannot be written; its ``filename`` is ``path``.
    """
    with _named(path):
        _append(path, content, mode)


def write_result(path: Path, content: bytes) -> None:
    """Write the result of a long run; if that fails, save it in the temporary directory.

    Raises:
        OSError: ``path`` cannot be written; the message says where the content is instead.
    """
    try:
        write_bytes(path, content)
    except OSError as error:
        raise OSError(f"{reason(error)}; {rescued(path.name, content)}") from error


def rescued(name: str, content: bytes) -> str:
    """Save content in the temporary directory.

    Returns:
        A clause that says where it is, or that it is lost.
    """
    try:
        place = Path(tempfile.gettempdir()) / f"draftwood-{os.getpid()}-{name}"
        write_bytes(place, content)
    except OSError as error:
        return f"the result could not be kept elsewhere ({reason(error)}) and is lost"
    return f"the result is in {place}: move it to a safe place"


def reason(error: OSError) -> str:
    """The error's message with its file name."""
    message = error.strerror or str(error)
    return f"{message}: {error.filename}" if error.filename else message


def _replace(path: Path, content: bytes, mode: int) -> None:
    part = path.with_name(f".draftwood-{uuid4().hex}{path.suffix}")
    try:
        keeps = os.name == "posix" and path.exists()
        _append(part, content, PRIVATE if keeps else mode)
        if keeps:
            part.chmod(stat.S_IMODE(path.stat().st_mode))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _pour(path: Path, content: bytes) -> None:
    """Write to a stream; to a standard one behind what was printed, also where that is a file."""
    standard = _standard(path)
    if standard is None:
        handle = os.open(path, os.O_WRONLY)  # makes no file if the stream is gone
    else:
        (sys.stdout if standard == _STDOUT else sys.stderr).flush()
        handle = os.dup(standard)
    with open(handle, "wb") as file:
        file.write(content)


def _standard(path: Path) -> int | None:
    """The descriptor of standard output or error that a path is another name of."""
    for handle in (_STDOUT, _STDERR):
        with suppress(OSError, ValueError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
    return None


def _followed(path: Path) -> Path:
    """The path, or the one that it leads to as a symbolic link."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _check_directory(directory: Path) -> None:
    if not directory.is_dir():
        raise DraftwoodError(
            f"cannot write to {directory}: there is no such directory; make it first"
        )
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".draftwood-"):
            pass
    except OSError as error:
        raise DraftwoodError(
            f"cannot write to {directory}: no file can be made there ({error.strerror}); name "
            "another directory"
        ) from error


def _append(path: Path, content: bytes, mode: int) -> None:
    with open(path, "ab", opener=partial(os.open, mode=mode)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let an :class:`OSError` have the file name ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _decoded(kind: Any, plain: Any, place: str) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is object or kind is Any:
        return plain
    if origin is Annotated:
        with suppress(DraftwoodError):
            found = _decoded(inner[0], plain, place)
            if inner[1].least <= found <= inner[1].most:
                return found
    elif origin in (typing.Union, UnionType):
        others = [one for one in inner if one is not NoneType]
        if plain is None and len(others) < len(inner):
            return None
        for one in others:
            if not _simple(one):
                return _decoded(one, plain, place)
            with suppress(DraftwoodError):
                return _decoded(one, plain, place)
    elif is_dataclass(kind) and isinstance(plain, Mapping):
        return _dataclass(kind, plain, place)
    elif origin in (tuple, list) and isinstance(plain, list):
        same = origin is list or inner[-1] is Ellipsis
        kinds = [inner[0]] * len(plain) if same else inner
        if len(kinds) == len(plain):
            each = zip(kinds, plain, strict=True)
            return origin(_decoded(a, b, f"{place}[{i}]") for i, (a, b) in enumerate(each))
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        made: Any = dict if isabstract(origin) else origin
        return made(_pairs(*inner, plain=plain, place=place))
    elif kind is float and type(plain) in (int, float) and math.isfinite(plain):
        return float(plain)
    elif (kind is not float and type(plain) is kind) or (origin is Literal and plain in inner):
        return plain
    shown = json.dumps(plain, default=repr, ensure_ascii=False)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    raise DraftwoodError(f"{place or 'the top level'}: expected {_name(kind)}, found {shown}")


def _dataclass(kind: Any, plain: Mapping[str, Any], place: str) -> Any:
    given = {}
    for name, hint in _members(kind).items():
        if name not in plain:
            raise DraftwoodError(f"{_below(place, name)} is missing")
        given[name] = _decoded(hint, plain[name], _below(place, name))
    try:
        return kind(**given)
    except DraftwoodError as error:
        raise DraftwoodError(f"{place}: {error}" if place else str(error)) from error


def _pairs(key: Any, item: Any = int | float, *, plain: Any, place: str) -> Any:
    """The members of a mapping. A Counter's annotation lacks the type of its values."""
    if isinstance(plain, Mapping) and (key is str or not plain):
        return {name: _decoded(item, one, _below(place, name)) for name, one in plain.items()}
    if key is str:
        return _decoded(Mapping, plain, place)
    return dict(_decoded(GenericAlias(list, GenericAlias(tuple, (key, item))), plain, place))


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


@cache
def _members(kind: Any) -> dict[str, Any]:
    """The type of each written field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in fields(kind) if f.metadata.get("written", True)}


_NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    NoneType: "null",
}
_PLURAL = (int, float, str)
_SHOWN = 60


def _simple(kind: Any) -> bool:
    return kind in _NAMES or typing.get_origin(kind) in (Literal, Annotated)


def _name(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if origin is Annotated:
        up = "up" if inner[1].most == math.inf else f"to {inner[1].most:g}"
        return f"{_name(inner[0])} from {inner[1].least:g} {up}"
    if origin is Literal:
        return " or ".join(json.dumps(one) for one in inner)
    if origin in (typing.Union, UnionType):
        return " or ".join(map(_name, inner))
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return f"a list of {_NAMES[inner[0]].split()[1]}s" if inner[0] in _PLURAL else "a list"
    if origin is tuple:
        return f"a list of {len(inner)} values"
    return "an object"
