"""Pipeline schedules as data: the orders of their passes, an exact simulation, and closed forms that equal it."""

from placeproof.schedules.catalogue import is_own, load, names
from placeproof.schedules.closed import bubble, evaluate, form, forms, formula, formulas, messages, peak, step
from placeproof.schedules.order import Pass, orders, slots
from placeproof.schedules.own import checked_at, require_at
from placeproof.schedules.schedule import PassKind, Profile, Schedule, Search, StageLayout
from placeproof.schedules.simulation import UNIT, Times, simulate
from placeproof.schedules.timetable import Bubble, Kept, TimedSlot, Timetable, kept_at_most, kept_together

__all__ = [
    "UNIT",
    "Bubble",
    "Kept",
    "Pass",
    "PassKind",
    "Profile",
    "Schedule",
    "Search",
    "StageLayout",
    "TimedSlot",
    "Times",
    "Timetable",
    "bubble",
    "checked_at",
    "evaluate",
    "form",
    "forms",
    "formula",
    "formulas",
    "is_own",
    "kept_at_most",
    "kept_together",
    "load",
    "messages",
    "names",
    "orders",
    "peak",
    "require_at",
    "simulate",
    "slots",
    "step",
]
