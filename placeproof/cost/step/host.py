"""What a machine needs for what offloading keeps on the host.

Papers count the states (ren2021offload, section 3; rajbhandari2021infinity, section 3). DeepSpeed updates them there in fp32, gradients
too, and asks for half as much again for its buffers: `estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs`
in deepspeed/runtime/zero/stage_1_and_2.py and stage3.py, of DeepSpeed 0.19: 16 or 18 bytes a parameter, times 1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placeproof.core.symbols import symbol

if TYPE_CHECKING:
    import sympy

#: The difference, as it is told.
TOLD = (
    "host memory is what is kept there; asked for is what DeepSpeed's own formula says: gradients in fp32, and model states half as much"
    " again, for buffers"
)
_WIDE = 4
#: Widths of what is there once for each parameter that is updated.
_UPDATED = ("b_omega", "b_master")


def asked(amount: sympy.Expr) -> sympy.Expr:
    """Bytes that DeepSpeed asks for, of a device's share of the host that holds so many: 3/2 of model states with fp32 gradients.

    Wherever optimizer state is, gradients come to be, at least one by one in fp32. Activations on the host count as they are.
    """
    import sympy

    b_g = symbol("b_g")
    activations = amount.xreplace({symbol(name): sympy.Integer(0) for name in ("b_theta", "b_frozen", "b_g", "b_nu", "b_pre", *_UPDATED)})
    updated = sympy.Add(*(sympy.diff(amount, symbol(name)) for name in _UPDATED))
    states = amount - activations - b_g * sympy.diff(amount, b_g) + sympy.Max(b_g, _WIDE) * updated
    return sympy.Rational(3, 2) * states + activations
