"""Checks certificates that ``placeproof prove --certificate`` writes; of those of plans,
:mod:`placeproof.verify.plan` speaks. It needs Python's standard library and this folder alone.

A certificate holds *claims*: two terms are equal for all values of what is free in them, under hypotheses. Terms are as the encoding said
them. It also holds *steps*: what a sum over index variables is, each by one of the five rules for finite sums. Nothing is searched for
here: every step is looked at once, with nothing but the steps before it, and then both sides of every claim are worked out with them.

What is known without a step: the laws of rings; ``[a = b]`` is 1 or 0, and where it is 1 one may stand for the other; linearity of sums;
a function of a term by cases; of a maximum, that nested ones are one, and that an index that a guard fixes has one value; and that an
exponential is positive.

The whole format is in the reference of the documentation:

    index     ["var", name, sort]   ["of", function, [index, ...], sort]
    terms     ["number", "2/3"]   ["symbol", name]   ["apply", name, [argument, ...]]   ["plus", term, ...]   ["times", term, ...]
              ["power", term, n]   ["equal", index, index]   ["sum", [var, ...], term]   ["max", [var, ...], [[index, index], ...], term]
              ["let", [[var, index], ...], term]
    argument  a term, ["index", index], or ["function", [var, ...], term]

A term is the number of its line in the list of terms, and speaks of earlier lines only.
"""

from .check import SCHEMA, left_open, verify
from .model import SCHEMA_OF_MODEL, left_open_of_model, verify_model
from .plan import BROKEN, Plan, RejectedPlanError
from .plan import SCHEMA as SCHEMA_OF_PLAN
from .terms import RejectedError

__all__ = [
    "BROKEN",
    "SCHEMA",
    "SCHEMA_OF_MODEL",
    "SCHEMA_OF_PLAN",
    "Plan",
    "RejectedError",
    "RejectedPlanError",
    "left_open",
    "left_open_of_model",
    "verify",
    "verify_model",
]
