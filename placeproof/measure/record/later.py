"""Later steps of a script than the recorded one: those of other optimizers, and the next one, which shows what a step leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.launch import Launch, forked, of_rank_0
from placeproof.measure.record.recording import Recording
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

#: In how many steps an optimizer has to update once.
_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A step program, and what to know about how it came about. ``divisors``: numbers that stand in the script, and may be of ranks.
    ``sure``: what can be said of the next step is said; else all of it has to be. ``split``: over an axis, layers are split; ``apart``: why
    it cannot be compared with one process that is given the samples of all ranks, one after another; ``doubts``: what ranks do otherwise
    than rank 0, with lines: where they cannot be compared, the step is not understood; ``differ``: nor is it if it is refuted."""

    text: str
    ranks: tuple[int, ...]
    world: int
    notes: tuple[str, ...]
    divisors: tuple[int, ...] = ()
    sure: bool = True
    split: bool = False
    apart: str = ""
    doubts: tuple[tuple[str, int], ...] = ()
    differ: bool = False


@dataclass(frozen=True, slots=True)
class Later:
    """Records further steps of a script, by their numbers: the program of one, and what rank 0 did. It may raise InputError."""

    launch: Launch
    traced: Callable[[int], tuple[Traced, Recording]]

    def with_others(self, traced: Traced, first: Recording) -> Traced:
        """A step of a script whose other optimizers update in other steps: one of these, if it is not proved, or this one. Raises
        InputError where an optimizer does not update in many steps."""
        trained, left, number = _names(first, first.updates), _names(first, first.idle), self.launch.step
        while left and judge(read(traced.text)).word == "proved":
            number += 1
            other = of_rank_0(replace(self.launch, step=number))
            if other.step < number:
                break
            if number > self.launch.step + _STEPS:
                text = (
                    f"an optimizer has `{min(left)}`, and does not update it in {_STEPS} steps: whether a later one trains it is not seen"
                )
                refuse_lines(first.script, first.source, [(text, 0)], help="make optimizers only of what is trained")
            names = _names(other, other.updates)
            if names & left:
                note = f"This is step {number}, which trains other parameters than step {self.launch.step}: that one is proved by itself."
                found = _noted(self.traced(number)[0], note)
                if judge(read(found.text)).word != "proved":
                    return found
                note = f"Step {number} trains other parameters ({', '.join(sorted(names - trained)[:3])}): it is proved by itself."
                traced, trained = _both(_noted(traced, note), found), trained | names
            left = left - names
        return traced

    def with_next(self, traced: Traced, first: Recording) -> Traced:
        """A step of a script that goes on: the next one, if it is refuted, or this one, with what is not said of the next one, or is of
        another loss. Gradients that nobody clears, and what a loss keeps of samples, are seen there."""
        number = self.launch.step + 1
        if not first.goes_on or judge(program := read(traced.text)).word != "proved":
            return traced
        try:
            there = replace(self.launch, step=number)
            other = of_rank_0(there) if traced.sure else forked(there)[0]
            other = forked(there)[0] if other.step < number else other  # a run that stops early, or nothing, at an epoch's end
            if other.step < number or not other.updates:
                return traced
            found = self.traced(number)[0]
        except InputError as error:
            if not traced.sure:
                raise
            return without(traced, "next_step", f"step {number} cannot be said: {error.diagnostics[0].message}")
        following, another = read(found.text), not {*other.updates} & {*first.updates}
        if judge(following).word != "proved":
            if another:  # it may be a model of another kind, as one that the first is compared with
                return without(
                    traced, "next_step", f"step {number} trains other parameters, and is not proved: `--steps {number}` records it"
                )
            return _noted(found, f"This is step {number}: step {self.launch.step} is proved by itself.")
        if following.loss != program.loss and not another:
            return without(traced, "next_step", f"step {number} trains another loss")
        return _both(_noted(traced, f"Step {number} is proved, too. Later ones are not looked at: `--steps K` records one."), found)

    def with_previous(self, traced: Traced) -> Traced:
        """A proved step of a multiple of a mean, with what is said of the loss of the step before: what is a constant is one in all of
        them."""
        number, program = self.launch.step - 1, read(traced.text)
        if not number or all(term.factor == 1 for term in program.loss) or judge(program).word != "proved":
            return traced
        try:
            found = read(self.traced(number)[0].text).loss
        except InputError as error:
            return without(traced, "previous_step", f"step {number} cannot be said: {error.diagnostics[0].message}")
        return traced if found == program.loss else without(traced, "previous_step", f"step {number} trains another loss")


def _names(recording: Recording, states: Iterable[int]) -> frozenset[str]:
    return frozenset(recording.states[i].name for i in states)


def _both(traced: Traced, other: Traced) -> Traced:
    """A step, with what ranks do otherwise in another one, which is proved as far as it is compared."""
    return replace(traced, doubts=(*traced.doubts, *other.doubts), differ=True) if other.differ else traced


def _noted(traced: Traced, note: str) -> Traced:
    """A program with another comment in its head."""
    head, _, rest = traced.text.partition("\n")
    return replace(traced, text=f"{head}\n# {note}\n{rest}", notes=(*traced.notes, note))


def without(traced: Traced, name: str, text: str) -> Traced:
    """A program that says, by name, what nobody has compared."""
    lines = traced.text.splitlines(keepends=True)
    quoted = text.replace('"', "'").replace("\\", "/")
    place = next((i for i, line in enumerate(lines) if line.startswith("not_compared(")), None)
    if place is not None:
        lines[place] = f'{lines[place].rstrip()[:-1]}, {name}="{quoted}")\n'
    else:
        place = next(i for i, line in enumerate(lines) if line.startswith(("group(", "place(")))
        lines.insert(place, f'not_compared({name}="{quoted}")\n')
    return replace(traced, text="".join(lines), notes=(*traced.notes, f"Not compared: {text}"))
