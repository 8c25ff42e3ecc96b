"""What DeepSpeed holds in how many bytes, and by which of its optimizers (deepspeed==0.19.8:runtime/engine.py and bf16_optimizer.py).

``BF16_Optimizer`` shards the fp32 copy of the weights and the optimizer's state over data parallelism, whatever the ZeRO stage; gradients
stay whole, and are all-reduced. It runs a pipeline in bf16 at stage 0, and stage 1 with weights in bf16 and sums in fp32. Before 0.17.6
it ran all of bf16 at stage 0, with sums in fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

OLDER = "DeepSpeed before 0.17.6 sharded the fp32 copy and the optimizer's state over dp even so, and held gradients in fp32 too"
_MODULE = "so does this version if the program's model is a PipelineModule, with gradients in bf16 twice: `pipeline.stages` says so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """``weights``, ``sums``: fp16, bf16 or fp32, of the weights and of added gradients; ``host``: whether the optimizer lies there.

    ``immediate``: whether 16-bit gradients are dropped as soon as they are added up.
    """

    weights: str
    sums: str
    stage: int
    pipeline: bool = False
    host: bool = False
    immediate: bool = False

    @property
    def bf16_optimizer(self) -> bool:
        """Whether ``BF16_Optimizer`` runs it."""
        wide = self.stage == 1 and self.sums == "fp32" and not self.host
        return self.weights == "bf16" and ((self.stage == 0 and self.pipeline) or wide)

    def adam(self) -> tuple[str | None, str]:
        """The named precision of Adam, None where there is none, and what is to be told of it."""
        if self.weights == "fp32":
            return ("fp32-twice", "all in fp32, and ZeRO keeps a second copy of the weights") if self.stage else ("fp32-adam", "")
        if self.bf16_optimizer:
            return self._bf16()
        if self.sums == "fp32":
            held = "gradients are held in fp32, where they are added up"
            return ("megatron-bf16" if self.weights == "bf16" else "fp16-fp32sums"), held
        return "mixed-adam", f"{OLDER}; {_MODULE}" if self.weights == "bf16" and self.stage == 0 else ""

    def _bf16(self) -> tuple[str, str]:
        shards = "the fp32 copy of the weights and the optimizer's state lie in parts over dp, and gradients are all-reduced whole"
        if self.immediate:
            name, held = ("megatron-bf16" if self.sums == "fp32" else "mixed-adam"), f"in {self.sums} where they are added up"
        else:
            name = "fp16-fp32grad" if self.sums == "fp32" else "bf16-bf16grad"
            held = f"in bf16 as they come, and in {self.sums} where they are added up"
        return name, f"{shards}; they are held {held}"
