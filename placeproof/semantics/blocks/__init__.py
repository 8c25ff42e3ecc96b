"""One-device blocks on a mesh: a plan says which dimensions each axis splits, and lowering writes the program with its collectives."""

from placeproof.semantics.blocks.lower import lower_block
from placeproof.semantics.blocks.plan import Plan, PlanAxis, combined, context_parallel, data_parallel, expert_parallel, tensor_parallel

__all__ = ["Plan", "PlanAxis", "combined", "context_parallel", "data_parallel", "expert_parallel", "lower_block", "tensor_parallel"]
