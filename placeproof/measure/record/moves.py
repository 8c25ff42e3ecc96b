"""Operations that move numbers and do nothing else to them, as copies of parts of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from torch import Tensor
from torch.ops import aten  # type: ignore[import-not-found]

#: What is written, and where that comes from; 0 for zeros, and None for any other number.
Copy = tuple[Tensor, Tensor | int | None]


def copies(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> list[Copy] | None:
    """What an operation copies, all of it read before anything is written; None where it is to be done number by number."""
    given = dict(kwargs)
    target = given.pop("out", None)
    found = _TABLE[name](out if target is None else target, *args, **{k: v for k, v in given.items() if k not in _ASIDE})
    return None if found is None else list(found)


#: Of how numbers are kept.
_ASIDE = ("dtype", "device", "layout", "pin_memory", "non_blocking", "memory_format")


def _whole(out: Tensor, source: Tensor, *_: Any, **__: Any) -> Iterator[Copy]:
    yield out, source


def _onto(out: Tensor, into: Tensor, source: Any, *_: Any) -> Iterator[Copy]:
    yield into, source if isinstance(source, Tensor) else None


def _each_onto(out: Any, into: Sequence[Tensor], sources: Sequence[Tensor], *_: Any) -> Iterator[Copy]:
    yield from zip(out or into, sources, strict=True)


def _nothing(*_: Any, **__: Any) -> Iterator[Copy]:
    """The tensor has another storage from now on, with what is known of that."""
    yield from ()


def _cat(out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Iterator[Copy]:
    at = 0
    for source in tensors:
        if source.dim() == out.dim():  # an empty row may stand among others
            yield out.narrow(dim, at, source.size(dim)), source
            at += source.size(dim)


def _stack(out: Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Iterator[Copy]:
    for i, source in enumerate(tensors):
        yield out.select(dim, i), source


def _split(out: Sequence[Tensor], source: Tensor, sizes: Sequence[int], dim: int = 0) -> Iterator[Copy]:
    at = 0
    for into, size in zip(out, sizes, strict=True):
        yield into, source.narrow(dim, at, size)
        at += size


def _narrow(out: Tensor, source: Tensor, dim: int, start: int, length: int) -> Iterator[Copy]:
    yield out, source.narrow(dim, start, length)


def _slice(
    out: Tensor, base: Tensor, source: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Iterator[Copy]:
    yield out, base
    yield aten.slice.Tensor(out, dim, start, end, step), source


def _pad(out: Tensor, source: Tensor, pad: Sequence[int], value: Any = 0) -> Iterator[Copy]:
    yield out, None if value else 0
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        dim = source.dim() - 1 - i
        out = out.narrow(dim, max(before, 0), out.size(dim) - max(before, 0) - max(after, 0))
        source = source.narrow(dim, max(-before, 0), source.size(dim) - max(-before, 0) - max(-after, 0))
    yield out, source


def _chunk_cat(out: Tensor, tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Iterator[Copy]:
    """Each tensor is cut in parts, the last ones perhaps short or empty; a row of the result has one part of each."""
    yield out, 0
    at = 0
    for source in tensors:
        size = -(-source.size(dim) // num_chunks)
        for i, part in enumerate(source.split(size, dim) if source.numel() else ()):
            yield out.select(dim, i).narrow(dim, at, prod(part.shape[dim:])), part
        at += size * prod(source.shape[dim + 1 :])


def _gather_input(
    out: Any, sources: Sequence[Tensor], output: Tensor, sizes: Sequence[int], numel: int, rank: int, *_: Any
) -> Iterator[Copy]:
    yield from zip(output.narrow(0, numel * rank, numel).split(list(sizes)), sources, strict=True)


def _by_number(*_: Any, **__: Any) -> None:
    return None


_TABLE: Mapping[str, Callable[..., Iterator[Copy] | None]] = {
    "_chunk_cat": _chunk_cat,
    "_foreach_copy": _each_onto,
    "_foreach_copy_": _each_onto,
    "_to_copy": _whole,
    "alias_copy": _whole,
    "all_gather_copy_in": _gather_input,
    "cat": _cat,
    "chunk_cat": _chunk_cat,
    "clone": _whole,
    "constant_pad_nd": _pad,
    "copy_": _onto,
    "index_select": _by_number,
    "lift_fresh_copy": _whole,
    "narrow_copy": _narrow,
    "roll": _by_number,
    "set_": _nothing,
    "slice_scatter": _slice,
    "split_with_sizes_copy": _split,
    "stack": _stack,
    "view_copy": _whole,
}
#: The names of these operations.
MOVES = frozenset(_TABLE)
