"""Named precisions: the byte widths that numbers are computed with when nothing else is said."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes per parameter of the compute copy, the gradient and the optimizer state; bytes per activation element. ``b_master``: bytes of
    the optimizer state that are no moment."""

    name: str
    b_theta: int
    b_g: int
    b_omega: int
    b_master: int
    b_a: int
    meaning: str
    source: str

    @property
    def total(self) -> int:
        """Bytes per parameter in all."""
        return self.b_theta + self.b_g + self.b_omega

    def values(self) -> dict[str, Fraction]:
        """The widths by symbol; what is frozen has that of the compute copy."""
        widths = {name: Fraction(getattr(self, name)) for name in ("b_theta", "b_g", "b_omega", "b_master", "b_a")}
        return widths | {"b_frozen": widths["b_theta"]}


_ROWS = (
    Precision(
        name="mixed-adam",
        b_theta=2,
        b_g=2,
        b_omega=12,
        b_master=4,
        b_a=2,
        meaning="16-bit weights and gradients; fp32 master copy, momentum and variance",
        source="rajbhandari2020zero, section 3.1",
    ),
    Precision(
        name="mixed-muon",
        b_theta=2,
        b_g=2,
        b_omega=8,
        b_master=4,
        b_a=2,
        meaning="16-bit weights and gradients; fp32 master copy and momentum, and no variance, as of what Muon updates",
        source="liu2025moonlight, section 2.3",
    ),
    Precision(
        name="megatron-bf16",
        b_theta=2,
        b_g=4,
        b_omega=12,
        b_master=4,
        b_a=2,
        meaning="bf16 weights, fp32 gradients; fp32 master copy, momentum and variance",
        source="Megatron-LM, dist_optimizer.md",
    ),
    Precision(
        name="megatron-fp16",
        b_theta=2,
        b_g=2,
        b_omega=16,
        b_master=8,
        b_a=2,
        meaning="fp16 weights and gradients; fp32 master copy, gradient, momentum and variance beside the optimizer",
        source="Megatron-LM, dist_optimizer.md",
    ),
    Precision(
        name="fp16-fp32grad",
        b_theta=2,
        b_g=6,
        b_omega=12,
        b_master=4,
        b_a=2,
        meaning="16-bit weights; gradients in 16 and in 32 bits; fp32 master copy, momentum and variance",
        source="rajbhandari2021infinity, section 3",
    ),
    Precision(
        name="bf16-bf16grad",
        b_theta=2,
        b_g=4,
        b_omega=12,
        b_master=4,
        b_a=2,
        meaning="bf16 weights; gradients in bf16 twice, as they come and added up; fp32 master copy, momentum and variance",
        source="DeepSpeed 0.19.8, runtime/bf16_optimizer.py",
    ),
    Precision(
        name="fp32-adam",
        b_theta=4,
        b_g=4,
        b_omega=8,
        b_master=0,
        b_a=4,
        meaning="all in fp32: weights, gradients, momentum and variance",
        source="Megatron-LM, dist_optimizer.md",
    ),
    Precision(
        name="fp32-twice",
        b_theta=4,
        b_g=4,
        b_omega=12,
        b_master=4,
        b_a=4,
        meaning="all in fp32, the weights twice: ZeRO keeps a copy for its update",
        source="DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py",
    ),
    Precision(
        name="fp16-fp32sums",
        b_theta=2,
        b_g=4,
        b_omega=12,
        b_master=4,
        b_a=2,
        meaning="fp16 weights, gradients that are held and added up in fp32; fp32 master copy, momentum and variance",
        source="Megatron-LM, arguments.py: --accumulate-allreduce-grads-in-fp32",
    ),
    Precision(
        name="bf16-fp32copies",
        b_theta=2,
        b_g=2,
        b_omega=16,
        b_master=8,
        b_a=2,
        meaning="bf16 weights and gradients; fp32 copies of both, momentum and variance",
        source="Megatron-LM, arguments.py: --grad-reduce-in-bf16",
    ),
    Precision(
        name="bf16-adam",
        b_theta=2,
        b_g=2,
        b_omega=4,
        b_master=0,
        b_a=2,
        meaning="all in bf16, without a master copy: weights, gradients, momentum and variance",
        source="zhao2023fsdp, section 4.4",
    ),
    Precision(
        name="sgd-momentum",
        b_theta=4,
        b_g=4,
        b_omega=4,
        b_master=0,
        b_a=4,
        meaning="all in fp32: weights, gradients, momentum",
        source="goyal2017large",
    ),
    Precision(
        name="sgd",
        b_theta=4,
        b_g=4,
        b_omega=0,
        b_master=0,
        b_a=4,
        meaning="all in fp32: weights and gradients",
        source="goyal2017large",
    ),
)

#: No precision: the widths stay symbols. It is that of a configuration that holds states in widths that none of the named ones has.
OPEN = "open"
PRECISIONS: dict[str, Precision] = {p.name: p for p in _ROWS}
DEFAULT_PRECISION = "mixed-adam"
