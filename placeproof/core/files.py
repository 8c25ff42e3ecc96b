"""Files that a user names: which endings mean a configuration, and the only place where the text of one is read or written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn, TypeVar

from placeproof.core.diagnostics import Diagnostic, InputError, Place

Content = TypeVar("Content", str, bytes)

#: Endings of configurations -> how they are read. `.json` is Hjson because DeepSpeed reads its files as that.
CONFIG_KINDS = {".json": "hjson", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "arguments", ".args": "arguments"}
CONFIG_KINDS |= dict.fromkeys((".bash", ".slurm", ".sbatch"), "arguments")
#: A function of a file of Python that makes a configuration.
REGISTRY = re.compile(r"(?P<path>[^()*]*\.py)(?::(?P<name>[A-Za-z_]\w*))?")

#: More bytes are refused, wherever they come from: a device file has no end.
MOST_BYTES = 16 * 2**20


#: Where digests of files go that are read.
_NOTED: ContextVar[dict[str, str] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[str, str]]:
    """Digests (SHA-256) of the files that are read in the block, by their paths."""
    noted: dict[str, str] = {}
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def config_kind(text: str) -> str | None:
    """How a file of this name is read if it is a configuration; None where its ending is that of none."""
    text = text.strip()
    return "registry" if REGISTRY.fullmatch(text) else CONFIG_KINDS.get(Path(text).suffix.lower())


def stems(folder: Path) -> tuple[str, ...]:
    """The names of the TOML files of a folder, without their ending, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def expanded(path: str | Path) -> Path:
    """A path, with the home directory for `~` where there is one."""
    try:
        return Path(path).expanduser()
    except RuntimeError:  # nobody has that home directory
        return Path(path)


def is_file(path: str | Path) -> bool:
    """Whether there is a file of this name. One that no file can have, too long or a link to itself, is that of none."""
    return os.path.isfile(expanded(path))


def read_text(path: str | Path, *, code: str, help: str, most: int = MOST_BYTES) -> str:
    """The text of a file in UTF-8, of so many bytes at most; `~` is the home directory. Raises InputError with the code and the help where
    it cannot be read."""
    data = read_bytes(path, code=code, help=help, most=most)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InputError([_no_text(path, data, error.start, code)]) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_bytes(path: str | Path, *, code: str, help: str, most: int = MOST_BYTES) -> bytes:
    """What a file holds. Raises InputError as :func:`read_text` does."""
    try:
        with expanded(path).open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        _refuse(code, f"cannot read `{path}`: {_reason(error)}", help, error)
    if (noted := _NOTED.get()) is not None:
        noted[str(path)] = hashlib.sha256(data).hexdigest()
    return _bounded(data, f"`{path}`", code, help, most)


def read_standard_input(*, code: str, help: str) -> str:
    """The text that is piped in. Raises InputError as :func:`read_text` does."""
    try:
        text = sys.stdin.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        _refuse(code, f"cannot read standard input: {_reason(error)}", help, error)
    return _bounded(text, "standard input", code, help)


def write_text(path: Path, text: str, *, code: str = "PP110", help: str = "give a file that can be written") -> None:
    """Write a file. Raises InputError with the code and the help where that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        _refuse(code, f"cannot write `{path}`: {_reason(error)}", help, error)


def replace_text(path: Path, text: str) -> None:
    """Write a file that is there as a whole, or as it was before. Raises InputError where that cannot be done."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        write_text(part, text)
        part.replace(path)
    except OSError as error:
        _refuse("PP110", f"cannot write `{path}`: {_reason(error)}", "give a file that can be written", error)
    finally:
        with contextlib.suppress(OSError):  # where none could be written, there is none
            part.unlink(missing_ok=True)


def append_text(path: Path, text: str) -> None:
    """Write at the end of a file. Raises InputError where that cannot be done."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _refuse("PP110", f"cannot write `{path}`: {_reason(error)}", "give a file that can be written", error)


def make_folder(path: Path, *, help: str) -> None:
    """Make a folder, where it is not there. Raises InputError where that cannot be done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        _refuse("PP110", f"cannot write to `{path}`: {_reason(error)}", help, error)


def _no_text(path: str | Path, data: bytes, at: int, code: str) -> Diagnostic:
    """A file that is not in UTF-8: where that shows."""
    before = data[:at].decode(errors="replace")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    place = Place(source=str(path), line=line, column=column, text=data.decode(errors="replace").splitlines()[line - 1])
    kind = "as text in UTF-16 begins" if at == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte 0x{data[at]:02x}"
    return Diagnostic(code=code, message=f"`{path}` is no text in UTF-8: {kind}", place=place, help="save it as UTF-8")


def _bounded(content: Content, named: str, code: str, help: str, most: int = MOST_BYTES) -> Content:
    if len(content) > most:
        _refuse(code, f"cannot read {named}: it has more than {most:,} bytes", help, None)
    return content


def _reason(error: OSError | ValueError) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _refuse(code: str, message: str, help: str, error: Exception | None) -> NoReturn:
    raise InputError([Diagnostic(code=code, message=message, help=help)]) from error
