"""Why a process of a replay does not go on."""

from __future__ import annotations


class NothingThereError(Exception):
    """A computation reads what the device does not have, or values that do not fit one another: shapes do not fit."""


class NotHomeError(Exception):
    """A device would return what is another device's part: it has not come home from its way round the ring."""


class NotReplayedError(Exception):
    """The program does something that this replay gives no meaning."""


class MissingNumberError(Exception):
    """The run needs something that the file does not hold."""
