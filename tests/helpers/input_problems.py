"""What an input is refused for, for tests of readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placeproof.core.diagnostics import Diagnostic, InputError


def problems(action: Callable[[], object]) -> list[Diagnostic]:
    """Every problem with which an input is refused; each has a remedy."""
    with pytest.raises(InputError) as caught:
        action()
    assert all(p.help for p in caught.value.diagnostics)
    return list(caught.value.diagnostics)
