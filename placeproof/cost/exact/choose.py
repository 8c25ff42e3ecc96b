"""Which implementations a profile has for a strategy, the strategy as they lower it, and what they make otherwise, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems
from placeproof.core.exchange import Exchange
from placeproof.core.strategy import NEUTRAL
from placeproof.cost.exact.optimizers import OPTIMIZERS
from placeproof.cost.exact.options import Value
from placeproof.profiles.profile import Implementation, Profile, names
from placeproof.profiles.profile import profile as read_profile

if TYPE_CHECKING:
    from placeproof.core.shapes import Shapes
    from placeproof.core.strategy import Strategy
    from placeproof.cost.exact.predict import Predicted

#: What may be otherwise beside the lowering, in the order in which differences are told; each names the fields that make it.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "cut": ("cut",),
    "calls": ("parameters", "gradients", "buckets"),
    "plan": ("plan",),
    "reads": ("reads",),
    "whole_gradients": ("whole_gradients",),
    "order": ("order",),
    "extras": ("extras",),
}
#: Plans of blocks that differ from another plan, which is taken as the ideal.
_PLANS = {"naive": "megatron", "megatron/tp": "megatron", "megatron/sp": "sp"}


def chosen(profile: Profile, strategy: Strategy, wanted: tuple[str, ...] = ()) -> tuple[Implementation, ...]:
    """The implementations of a strategy's parts: those that are wanted, and the usual ones of what these do not implement.

    The first is that of the states; blocks with the sequence split are run by the implementation of ``sp`` alone. Raises InputError
    for parts that the profile does not implement, and for implementations that nothing in the strategy asks for.
    """
    problems = Problems()
    parts = tuple(p.split("(")[0] or p for p in strategy.parts)
    named = [one for name in wanted for one in [_found(profile, name, problems)] if one is not None]
    for one in named:
        if not set(one.of) & set(parts):
            message = f"`{one.name}` implements {' and '.join(one.of)}, and `{strategy.name}` is none of that"
            problems.add("PP101", message, help="leave it out, or name an implementation of what the strategy has")
        elif not one.suits(strategy.schedule):
            problems.add("PP101", f"`{one.name}` does not run `{strategy.name}`: it is {one.title}", help=_said(one))
    picked: list[Implementation] = list(named)
    for part in parts:
        if any(part in one.of for one in picked) or (part == "tp" and "sp" in parts):
            continue
        usual = profile.usual(part, strategy.schedule)
        if usual is not None:
            picked.append(usual)
        elif part not in ("accumulate", "checkpoint") and not (part == "clip" and any(one.clips for one in profile.implementations)):
            known = sorted({name for one in profile.implementations for name in one.of})
            message = f"profile `{profile.name}` does not say how `{part}` is implemented"
            others = [_said(one) for one in profile.implementations if part in one.of]
            if others:
                message = f"nothing in profile `{profile.name}` runs `{part}` as in `{strategy.name}`"
            elsewhere = [f"`{name}`" for name in names() if any(part in one.of for one in read_profile(name).implementations)]
            others = others or [f"it knows {', '.join(known)}"] + ([f"known in profile {', '.join(elsewhere)}"] if elsewhere else [])
            problems.add("PP101", message, help="; ".join(dict.fromkeys(others)))
    for one in picked:
        _check_sets(strategy, one, profile, problems)
    problems.raise_if_any()
    return tuple(sorted({one.name: one for one in picked}.values(), key=lambda one: bool(one.plan)))


#: Fields of a schedule by the options of strategies that set them, where these have another name.
_OPTION_OF = {"in_flight": "schedule", "reshard": "reshard_after_forward"}


def _said(implementation: Implementation) -> str:
    """What a strategy says that this implementation runs."""
    values = {"number": "2", **{word: word for word in ("true", "false")}}
    settings = [f"{_OPTION_OF.get(field, field)}={values.get(value, value)}" for field, value in implementation.when.items()]
    runs = f"{implementation.of[0]}({', '.join(settings)})" if settings else " and ".join(implementation.of)
    return f"`{implementation.name}` runs {runs}"


def _check_sets(strategy: Strategy, implementation: Implementation, profile: Profile, problems: Problems) -> None:
    """The strategy says an option otherwise than the implementation sets it: the figures would not be of what is said."""
    for text in strategy.parts:
        name, _, inside = text.rstrip(")").partition("(")
        given = dict(part.strip().split("=", 1) for part in inside.split(",") if "=" in part)
        for key, value in implementation.sets.items():
            if name in implementation.of and given.get(key, str(value)).lower() != str(value).lower():
                suits = [i.name for i in profile.implementations if name in i.of and i.suits(strategy.schedule) and i is not implementation]
                others = [i for i in suits if str(profile.find(i).sets.get(key, NEUTRAL.get(key))).lower() == given[key].lower()]
                help_ = f"`--with {others[0]}`" if others else f"leave `{key}` out"
                problems.add("PP104", f"`{implementation.name}` has {key}={value}, not {key}={given[key]}", help=help_)


def _found(profile: Profile, name: str, problems: Problems) -> Implementation | None:
    with problems.collecting():
        return profile.find(name)
    return None


def realised_text(strategy: Strategy, implementations: tuple[Implementation, ...]) -> str:
    """The strategy as an expression, with the options that its implementations set: what `derive` and `prove` can be asked about."""
    parts = []
    for text in strategy.parts:
        name = text.split("(")[0]
        sets = {
            k: v
            for implementation in implementations
            if name in implementation.of
            for k, v in implementation.sets.items()
            if f"{k}=" not in text
        }
        options = ", ".join(f"{key}={value}" for key, value in sets.items())
        given = text[len(name) + 1 : -1] if "(" in text else ""
        inside = ", ".join(part for part in (given, options) if part)
        parts.append(f"{name}({inside})" if inside else name)
    return " * ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference: its name, what it is, and what it changes: bytes and calls of each kind of exchange, and memory by state."""

    name: str
    text: str
    bytes: Mapping[str, int]
    calls: Mapping[str, int]
    memory: Mapping[str, int]


Predict = Callable[[tuple[Implementation, ...]], "Predicted"]


def explained(
    strategy: Strategy,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    mesh: Mapping[str, int],
    *,
    rank: int = 0,
    options: Mapping[str, Value] | None = None,
) -> tuple[Predicted, tuple[Change, ...], Predicted]:
    """The ideal's exact bytes, what each named difference makes of them, one after the other, and the implementations' exact bytes.

    Of a system with rules of its own, the differences act together: they are told as one.
    """
    from placeproof.cost.exact.predict import predict

    def predicted(now: tuple[Implementation, ...]) -> Predicted:
        return predict(strategy, now, shapes, mesh, rank=rank, options=options)

    factored = OPTIMIZERS[str((options or {}).get("optimizer") or "adamw")].factored
    now = tuple(_ideal(i, whole=factored) for i in implementations)
    if implementations and implementations[0].system:
        together = tuple(i.name for i in now)  # what a system is measured with says nothing of the ideal
        now = tuple(replace(i, beside=together) for i in now)
        ideal, last = predict(strategy, now, shapes, mesh, rank=rank, options=_typed(options)), predicted(implementations)
        every = {name: text for i in implementations for name, text in i.differences.items()}
        return ideal, (_change(", ".join(every), "\n".join(every.values()), ideal, last),), last
    ideal = before = predicted(now)
    changes = []
    for position, one in enumerate(implementations):
        for name, text in _ordered(one):
            now = (*now[:position], _with(now[position], one, name), *now[position + 1 :])
            after = predicted(now)
            changes.append(_change(name, text, before, after))
            before = after
    return ideal, tuple(changes), predicted(implementations)


def _ideal(implementation: Implementation, *, whole: bool = False) -> Implementation:
    """An implementation without what it makes otherwise. What it sets without a difference of that name stays, and so do tensors that are
    dealt out whole where the optimizer wants them ``whole``."""
    sets = {key: value for key, value in implementation.sets.items() if key not in implementation.differences}
    reads = dict.fromkeys(implementation.reads, 1)
    plan = _PLANS.get(implementation.plan, implementation.plan)
    return replace(
        implementation,
        sets=sets,
        cut="weights" if whole and implementation.cut == "weights" else "elements",
        parameters="unit",
        gradients="unit",
        plan=plan,
        reads=reads,
        whole_gradients=(),
        order="loop",
        extras=False,
        system="",
    )


def _typed(options: Mapping[str, Value] | None) -> dict[str, Value]:
    """What the ideal takes of a system's options: the element type and the optimizer."""
    return {name: value for name, value in (options or {}).items() if name in ("dtype", "optimizer")}


def _ordered(implementation: Implementation) -> list[tuple[str, str]]:
    order = [*implementation.sets, *_FIELDS]
    return sorted(implementation.differences.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order))


def _with(now: Implementation, implementation: Implementation, name: str) -> Implementation:
    if name in implementation.sets:
        return replace(now, sets={**now.sets, name: implementation.sets[name]})
    return replace(now, **{field: getattr(implementation, field) for field in _FIELDS.get(name, ())})


def _change(name: str, text: str, before: Predicted, after: Predicted) -> Change:
    sizes, counts = _by_kind(after.exchanges), Counter(e.kind for e in after.exchanges)
    old_sizes, old_counts = _by_kind(before.exchanges), Counter(e.kind for e in before.exchanges)
    return Change(
        name=name,
        text=text,
        bytes={k: sizes[k] - old_sizes[k] for k in sorted(sizes | old_sizes) if sizes[k] != old_sizes[k]},
        calls={k: counts[k] - old_counts[k] for k in sorted(counts | old_counts) if counts[k] != old_counts[k]},
        memory={k: after.memory[k] - before.memory[k] for k in after.memory if after.memory[k] != before.memory.get(k)},
    )


def _by_kind(exchanges: tuple[Exchange, ...]) -> Counter[str]:
    bytes_by_kind: Counter[str] = Counter()
    for exchange in exchanges:
        bytes_by_kind[exchange.kind] += exchange.bytes
    return bytes_by_kind
