"""Whether a training script ends, on real processes, with what one process computes: the same bits, or by how much not.

This module does without torch until a script is run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from placeproof.core.diagnostics import Problems
from placeproof.measure.compared import Compared

#: How long the processes of a script may take in all, in seconds.
PATIENCE = 120.0
#: How long a collective waits for another rank, in seconds.
WAIT = 20.0


def compare(
    path: Path | str,
    world: int | None = None,
    *,
    timeout: float = PATIENCE,
    wait: float = WAIT,
    environment: Mapping[str, str] | None = None,
) -> Compared:
    """Run a script on gloo processes and in one process, and say where its parameters differ after the step.

    The script is one that defines ``train()``, which returns the full parameters as this rank ends with them, by name (a rank of a
    pipeline those that it has); ``reference()``, which returns what one process computes; and ``WORLD``, the number of processes where
    ``world`` does not say it. ``train`` finds the default process group initialised. ``timeout``: seconds for all; ``wait``: seconds for
    one collective. ``environment``: variables to set in the processes, TORCH_DISTRIBUTED_DEBUG among them.

    Raises InputError for a file that is no such script, and RuntimeError where its reference fails.
    """
    return compare_all([path], world, timeout=timeout, wait=wait, environment=environment)[0]


def compare_all(
    paths: Sequence[Path | str],
    world: int | None = None,
    *,
    timeout: float = PATIENCE,
    wait: float = WAIT,
    environment: Mapping[str, str] | None = None,
) -> list[Compared]:
    """As :func:`compare`, for several scripts: those of one folder and of equally many processes share these, one after the other.

    If anything goes wrong there, each of them is run again in processes of its own: what one script leaves behind decides about no
    other. ``timeout`` is for all that share processes.
    """
    files = [Path(p).resolve() for p in paths]
    _check(files)
    from placeproof.measure.equality_run import judge, read_all, train_all

    compared: dict[Path, Compared] = {}
    for folder in dict.fromkeys(file.parent for file in files):
        scripts = read_all([file for file in dict.fromkeys(files) if file.parent == folder], timeout)
        for size in dict.fromkeys(world or script.world for script in scripts.values()):
            group = [file for file, script in scripts.items() if (world or script.world) == size]
            ran = train_all(group, size, timeout=timeout, wait=wait, environment=environment or {})
            compared |= {file: judge(file, scripts[file].reference, ran[file]) for file in group}
    return [compared[file] for file in files]


def _check(files: Sequence[Path]) -> None:
    problems = Problems()
    if importlib.util.find_spec("torch") is None:
        problems.add("PP601", "torch is not installed: no script can be run", help="install torch")
    for file in files:
        if not file.is_file():
            problems.add("PP110", f"there is no script {file}", help="give the path of a Python file")
    problems.raise_if_any()
