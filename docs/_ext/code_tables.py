"""Reference tables, read off the tables of the code."""

from __future__ import annotations

from fractions import Fraction

from pipe_tables import code, plain, table, value

from placeproof.collectives import COLLECTIVES, CONVERSIONS
from placeproof.core.bounds import LARGEST, MOST_COUNT, MOST_EXPONENT
from placeproof.core.codes import CODES
from placeproof.core.files import MOST_BYTES
from placeproof.core.formula import MOST_CHARACTERS, MOST_LEVELS
from placeproof.core.mesh import SPLITS, USUAL_SPLITS
from placeproof.core.modes import MODES
from placeproof.core.precision import DEFAULT_PRECISION, PRECISIONS
from placeproof.core.shapes import MOST_LAYERS
from placeproof.core.states import STATES
from placeproof.core.strategy import NEUTRAL, SCHEDULE_FIELDS
from placeproof.core.symbols import SYMBOLS, Dimension, SymbolInfo, info
from placeproof.programs.ops import LOOPS, OPS, RESERVED
from placeproof.programs.parse import MAX_LINES
from placeproof.programs.wellformed import RULES
from placeproof.semantics.usable import RULES as USABILITY


def symbols() -> str:
    """The notation table: every symbol of a formula, and the degree of a named axis."""
    rows = [_symbol(row, row.name) for row in SYMBOLS.values()]
    rows.append(_symbol(info("N_dp"), "N_<axis>", "degree of one of several axes; here of `dp`"))
    return table(["symbol", "written", "values", "dimension", "meaning"], rows)


def _symbol(row: SymbolInfo, name: str, meaning: str | None = None) -> tuple[str, ...]:
    values = row.domain.value + (f", at most {row.at_most}" if row.at_most else "") + (f"; {row.default} unless set" if row.default else "")
    return (f"${row.latex}$", code(name), plain(values), dimension(row.dimension), meaning or plain(row.meaning))


def dimension(units: Dimension) -> str:
    """A dimension in words: ``byte / parameter``."""
    above = " ".join(u for u, power in units.items() if power > 0)
    below = " ".join(u for u, power in units.items() if power < 0)
    return f"{above} / {below}" if below else above or "a pure number"


def states() -> str:
    """The four training states."""
    rows = [(code(s.name), s.symbol, f"${info(s.width).latex}$", plain(s.meaning)) for s in STATES.values()]
    return table(["state", "symbol", "bytes per element", "meaning"], rows)


def splits() -> str:
    """What an axis can split, and the axis names that say so by themselves."""
    rows = []
    for s in SPLITS.values():
        usual = ", ".join(code(a) for a, what in USUAL_SPLITS.items() if what == s.name)
        rows.append((code(s.name), plain(s.meaning), usual, _yes(s.samples), _yes(s.compute)))
    return table(["splits", "meaning", "usual axis names", "devices see different samples", "computation is split"], rows)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def precisions() -> str:
    """The named precisions."""
    rows = []
    for p in PRECISIONS.values():
        name = code(p.name) + (" (default)" if p.name == DEFAULT_PRECISION else "")
        widths = [str(w) for w in (p.b_theta, p.b_g, p.b_omega, p.total, p.b_a)]
        rows.append((name, *widths, plain(p.meaning), plain(p.source)))
    head = ["precision", "$b_\\theta$", "$b_g$", "$b_\\omega$", "bytes per parameter", "$b_a$", "meaning", "source"]
    return table(head, rows)


def modes() -> str:
    """The five modes."""
    rows = [
        (code(m.symbol), m.name.lower(), code(m.device.value), code(m.host.value), m.peak, plain(m.traffic), plain(m.meaning))
        for m in MODES.values()
    ]
    head = ["mode", "name", "held on the device", "held on the host", "extra at the peak", "traffic it causes", "meaning"]
    return table(head, rows)


def usability() -> str:
    """What a placement must satisfy to be lowered."""
    return table(["every placement must satisfy", "error otherwise"], [(plain(r.demands), error_link(r.code)) for r in USABILITY])


def error_link(name: str) -> str:
    """A link to an error code's section, from a page of the reference."""
    anchor = f"{name}: {CODES[name].title}".lower().replace(":", "").replace(",", "").replace("+=", "").replace(" ", "-")
    return f"[{name}](errors.md#{anchor})"


def schedule() -> str:
    """The fields of a schedule."""
    rows = [(code(name), value(NEUTRAL[name]) if name in NEUTRAL else "") for name in SCHEDULE_FIELDS]
    return table(["key of `[schedule]`", "if nobody sets it"], rows)


def collectives() -> str:
    """The collectives and the bytes that a device sends."""
    rows = [(code(c.name), plain(c.meaning), plain(c.rule), plain(c.s)) for c in COLLECTIVES.values()]
    return table(["collective", "meaning", "bytes that one device sends", "s is"], rows)


def conversions() -> str:
    """Ways from one layout to another on one axis."""
    rows = [(c.before.value, c.after.value, code(c.op), str(c.passes)) for c in CONVERSIONS]
    return table(["from", "to", "operation", "passes of (n-1)/n s"], rows)


def operations() -> str:
    """The operations of step programs."""
    rows = []
    for op in OPS.values():
        least, most = op.results
        results = str(least) if least == most else f"{least} or {most}"
        rows.append((code(op.signature()), results, _yes(op.collective), plain(op.doc)))
    return table(["written", "results", "collective", "meaning"], rows)


def domains() -> str:
    """What a loop can walk over, coarse to fine."""
    return table(["loop over", "meaning"], [(code(name), meaning) for name, meaning in LOOPS.items()])


def reserved() -> str:
    """The words that no buffer may be called."""
    return ", ".join(code(word) for word in sorted(RESERVED)) + ".\n"


def bounds() -> str:
    """How large inputs may be."""
    rows = [
        ("a file, or standard input", f"{MOST_BYTES:,} bytes"),
        ("the degree of an axis, and whatever else is counted", f"{MOST_COUNT:,}"),
        ("layers of `transformer(...)`", f"{MOST_LAYERS:,}"),
        (
            "any other number of a setting, program, theorem or cluster",
            f"from {float(1 / Fraction(LARGEST)):g} to {float(LARGEST):g}",
        ),
        ("an exponent in a program or a theorem", f"{MOST_EXPONENT}"),
        ("lines of a step program", f"{MAX_LINES:,}"),
        ("levels of a formula or a step program", f"{MOST_LEVELS}"),
        ("characters of a formula", f"{MOST_CHARACTERS:,}"),
    ]
    return table(["what", "at most"], rows)


def rules() -> str:
    """The rules of well-formedness."""
    return table(["a well-formed program", "error otherwise"], [(plain(r.demands), error_link(r.code)) for r in RULES])
