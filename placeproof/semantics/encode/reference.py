"""What a single device computes in the step: the gradient of the global batch, and the update."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from placeproof.core.strategy import NORM
from placeproof.programs.ir import Term
from placeproof.programs.losses import MICRO_BATCHES
from placeproof.prove.terms import ONE, ZERO, Index, Poly, Var, app, by_cases, constant, greatest, inverse, lam, product, substitute, total
from placeproof.prove.terms.addition import of_atom, sum_of
from placeproof.prove.terms.nodes import App, Atom, Mono
from placeproof.semantics.encode.compute import Reduced, elementwise, input_part, largest, not_finite, pass_gradient, weight_gradient
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.world import E_BLOCK, E_LINE, E_SLICE, World


@dataclass
class Reference:
    """The reference step of a program's world."""

    world: World

    @cached_property
    def options(self) -> dict[str, str]:
        """What the reference does beyond a plain step."""
        return dict(self.world.program.reference)

    def sample_gradient(self, group: str, sample: tuple[Index, ...], of: Reduced | None = None) -> Poly:
        """The gradient of one sample's mean loss with respect to an element."""
        world, of = self.world, of or Reduced()
        declared = world.group(group)
        if world.by_groups and world.tied(group) is None:
            dz = world.dx(sample, world.end("blocks", E_BLOCK), of.of)
            return weight_gradient(world, group, sample, E_BLOCK, self._dy(sample, E_BLOCK, dz) if group == NORM else dz)
        more = () if not world.coupled or world.network else (self.mean_statistic,)
        element = world.element(group)
        parts = [Var(f"part.{f}", world.sorts[f]) for f in world.partial(group)]
        if world.tied(group) is not None:
            first, last = (app(f"g{of.of}.{group}.{end}", *sample, *parts, *element, *more) for end in ("first", "last"))
            return total(parts, first + last)
        if declared.experts:
            return total(parts, app(f"g{of.of}.{group}", *sample, *parts, *element, *more))
        at = {**world.here, **{v.sort.name: v for v in parts}}
        own = total(parts, pass_gradient(world, group, sample, at, more[0] if more else None, of))
        return world.with_shared(group, own, lambda _, block: substitute(own, {E_BLOCK.name: block}))

    @cached_property
    def mean_statistic(self) -> Poly:
        """The statistic of the global batch."""
        sample = self.world.any_sample
        return product(total(sample, self.world.statistic(sample)), inverse(total(sample, ONE)))

    def _dy(self, sample: tuple[Index, ...], block: Index, dz: Poly) -> Poly:
        world = self.world
        return sum((total([E_SLICE], input_part(world, g, sample, block, dz)) for g in world.parts_of_a_block), ZERO)

    def mean_gradient(self, group: str) -> Poly:
        """The gradient of what is trained: of the mean over every token of the global batch, unless the program says otherwise."""
        sample = self.world.any_sample
        if terms := self.world.program.loss:
            return sum((product(constant(t.factor), self._of_term(t, group)) for t in terms), ZERO)
        weighted = product(self.world.tokens(sample), self.sample_gradient(group, sample))
        if self.world.coupled and self.world.network:
            weighted = product(weighted, self.mean_statistic)
        return product(total(sample, weighted), inverse(total(sample, self.world.tokens(sample))))

    def _of_term(self, term: Term, group: str) -> Poly:
        """The gradient of one term of what is trained."""
        world, sample = self.world, self.world.any_sample
        if world.coupled:
            raise NoMeaningError("what a loss is a mean over, with layers that use statistics of the batch", None)
        many = world.counted(term.of, sample)
        summed = product(many, self.sample_gradient(group, sample, Reduced(loss=term.loss, unit=term.of)))
        shared = [v for v in world.shared_by_parts(sample) if isinstance(v, Var)]
        parts = [v for v in sample if v not in shared]
        if isinstance(term.over, Fraction):
            return product(total(sample, summed), constant(1 / term.over))
        if term.over != MICRO_BATCHES:
            over = sample if term.over == "tokens" else shared
            return product(total(sample, summed), inverse(total(over, world.counted(term.over, sample))))
        own = total(parts, many) if term.of == "tokens" else many
        return product(total(shared, product(inverse(own), total(parts, summed))), inverse(total(shared, ONE)))

    @cached_property
    def square_norm(self) -> Poly:
        """The square of the global norm of the gradient; what the ends of a pipeline share is one weight."""
        groups = self.world.program.trained
        own = {g: self.world.repeated(g) if self.world.shared(g) is not None else ZERO for g in groups}
        squares = (product(constant(1) - own[g], *[self.mean_gradient(g)] * 2) for g in groups)
        return sum((total(self.world.element(g), square) for g, square in zip(groups, squares, strict=True)), ZERO)

    def gradient(self, group: str) -> Poly:
        """The gradient that the update reads: clipped where the reference clips."""
        plain = self.mean_gradient(group)
        if self.options.get("clip") == "global_norm":
            limit = self.world.program.clip_limit
            more = () if limit is None else (constant(limit),)
            return product(plain, elementwise("clip", elementwise("sqrt", self.square_norm), *more))
        return plain

    def not_finite(self) -> Poly:
        """The flag of the loss scaler: some element of the gradient is not finite."""
        return largest(*(greatest(self.world.element(g), not_finite(self.gradient(g))) for g in self.world.program.trained))

    def updated(self, state: str, group: str) -> Poly:
        """A state's element after the step; what is frozen stays as it is."""
        if self.world.group(group).frozen:
            return self.world.theta(group)
        theta, omega, g = self.world.theta(group), self.world.omega(group), self.gradient(group)
        new = update_value(self.world, state, group, (theta, omega, g), ONE)
        if self.options.get("skip") == "not_finite":
            return app("unless", self.not_finite(), theta if state == "parameters" else omega, new)
        return new

    def unfolded(self, body: Poly) -> Poly:
        """A stream with each block's output, and each block's input gradient, written out by the block's definition."""
        return sum_of((self._unfolded_mono(mono), factor) for mono, factor in body.terms)

    def _unfolded_mono(self, mono: Mono) -> Poly:
        factors = (self._unfolded_atom(atom) if exponent == 1 else of_atom(atom, exponent) for atom, exponent in mono.factors)
        return product(Poly({Mono({}, mono.guards): Fraction(1)}), *factors)

    def _unfolded_atom(self, atom: Atom) -> Poly:
        world = self.world
        if isinstance(atom, App) and (atom.name == "x" or atom.name.startswith("dx")):
            sample, at = tuple(a for a in atom.args[:-3]), atom.args[-3]
            name, block = getattr(at, "name", ""), getattr(at, "args", (None,))[0]
            if atom.name == "x" and name == "end.blocks":
                return world.x(sample, world.start("blocks", block)) + self._added(sample, block, atom.args[-2:])  # type: ignore[arg-type]
            if atom.name.startswith("dx") and name == "start.blocks":
                dz = world.dx(sample, world.end("blocks", block), atom.name.removeprefix("dx"))  # type: ignore[arg-type]
                return dz + input_part(world, NORM, sample, block, self._dy(sample, block, dz))  # type: ignore[arg-type]
        return of_atom(atom)

    def _added(self, sample: tuple[Index, ...], block: Index, at: tuple[Index, ...]) -> Poly:
        """What a block adds to the stream: the sum over all slices, of matrices and of experts."""
        return sum((total([E_SLICE], app(f"q.{g}", *sample, block, E_SLICE, *at)) for g in self.world.parts_of_a_block), ZERO)


def optimizer_of(world: World, group: str) -> str:
    """What the reference's optimizer reads for an element of a group, by a word of ``reference(optimizer=...)``."""
    kind = world.group(group).update or dict(world.program.reference).get("optimizer", "elementwise")
    return "matrix" if "elementwise-optimizer" in world.options.without and kind == "elementwise" else kind


def update_value(world: World, state: str, group: str, operands: tuple[Poly, Poly, Poly], held: Poly, given: tuple[Poly, ...] = ()) -> Poly:
    """What an update writes for an element. ``held``: 1 for the elements that the device has of the tensor.

    An element-wise optimizer reads the element's own numbers; one with tensor norms also sums over what the device holds of the
    tensor, one of factors along the lines of a matrix before that; one of directions makes them of the whole matrix as the device sees it;
    or what it needs beside is ``given``. A matrix optimizer reads the whole matrix, too.
    """
    name, kind = f"new {state}", optimizer_of(world, group)
    if not given and kind in ("matrix", "preconditioned"):
        return app(f"{name} of a matrix", *(lam(_within(world, group), o) for o in operands), *world.element(group))
    if not given and kind == "tensor_norm":
        given = (tensor_norm(world, group, operands, held),)
    if not given and kind == "factored":
        sums = of_lines(world, group, line_sums(world, group, operands[2], held))
        given = (sums, tensor_norm(world, group, (*operands, sums), held))
    if not given and kind == "orthogonal":
        given = (orthogonalized(world, group, momentum(*operands[1:])),)
    return by_cases(lambda *args: app(name, *args), *operands, *given)


def momentum(omega: Poly, gradient: Poly) -> Poly:
    """What an optimizer makes of an element's state and gradient, before it reads whole matrices."""
    return by_cases(lambda *args: app("momentum", *args), omega, gradient)


def orthogonalized(world: World, group: str, body: Poly) -> Poly:
    """What an optimizer makes of the whole matrix in which an element lies, as the device sees it: any function of it."""
    return app("orthogonal", lam(_within(world, group), body), *world.element(group))


def _within(world: World, group: str) -> list[Var]:
    """The variables that walk over a matrix. Raises NoMeaningError of experts whose parts over a second axis are no matrices either."""
    cut = (a for a in world.split_axes("parameters", group) if not world.is_expert_axis(group, a))
    if group in world.expert_groups and any(world.axis_of(a).splits.partial for a in cut):
        raise NoMeaningError(f"which parts of experts of group `{group}` belong to one matrix is not said", None)
    return list(world.within(group))


def line_sums(world: World, group: str, gradient: Poly, held: Poly) -> Poly:
    """What an optimizer sums along a line of the matrix in which an element lies, ``E_LINE``, over the elements that the device has: any
    function of each, which is zero for those that do not lie on it."""
    terms = by_cases(lambda g: app("line term", E_LINE, *world.element(group), g), gradient)
    return total(_within(world, group), product(held, terms))


def of_lines(world: World, group: str, sums: Poly) -> Poly:
    """What is read for an element of the sums along the lines of its matrix: any function of them all."""
    return app("of lines", lam([E_LINE], sums), *world.element(group))


def tensor_norm(world: World, group: str, operands: tuple[Poly, ...], held: Poly) -> Poly:
    """The statistic of a tensor that a layer-wise optimizer needs: a sum over the elements that the device has of it."""
    return total(_within(world, group), product(held, by_cases(lambda *args: app("norm term", *args), *operands)))
