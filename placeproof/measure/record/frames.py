"""Where of a program something is done: the line of the script, and the module that has begun it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist

#: Where an operation is seen, where PyTorch is, and where methods of tensors are.
_HERE, TORCH, DISTRIBUTED = (str(Path(file).parent) for file in (__file__, torch.__file__, dist.__file__))
#: Where PyTorch exchanges what no loss hangs on; frameworks have files of the same names.
WRAPPERS = (str(Path(TORCH, "nn", "parallel", "distributed.py")), str(Path(TORCH, "distributed", "utils.py")))
_METHODS = tuple(
    str(Path("torch", *name.split("/"))) for name in ("_compile.py", "_dynamo/eval_frame.py", "_tensor.py", "functional.py", "overrides.py")
)
#: Where FSDP1 cuts parameters in parts, and fills the last one up.
FLAT = (str(Path(TORCH, "distributed", "fsdp", "_flat_param.py")),)
#: Where PyTorch clips by a norm.
CLIPPING = (
    str(Path(TORCH, "nn", "utils", "clip_grad.py")),
    str(Path(TORCH, "distributed", "fsdp", "fully_sharded_data_parallel.py")),
)


def line_of(script: str) -> int:
    """The line of a script that is being run; 0 for none."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == script:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


def lines_of(script: str) -> tuple[int, ...]:
    """The lines of a script that are being run, from the innermost function out."""
    frame, lines = sys._getframe(1), list[int]()
    while frame is not None:
        lines += [frame.f_lineno] if frame.f_code.co_filename == script else []
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(lines)


def is_ours(depth: int) -> bool:
    """Whether the caller so many frames up is of this package, which looks at tensors, too."""
    return sys._getframe(depth + 1).f_code.co_filename.startswith(_HERE)


def begun_by(folder: str) -> bool:
    """Whether what is being done was begun by a module in this folder, such as a wrapper of PyTorch's."""
    frame = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename.startswith(_HERE) or frame.f_code.co_filename.endswith(_METHODS)):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(folder)


def within(files: tuple[str, ...]) -> bool:
    """Whether one of these files is running, such as PyTorch's own wrapper, which compares shapes of parameters when it is made."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(files):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
