"""Pipelines of torch.distributed.pipelining: stages of a model, and messages that know which way they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, schedules

from placeproof.core.shapes import Shapes
from placeproof.measure.recorder import Recorder
from placeproof.measure.training.models import Piece

#: Schedules in which the second half of the stages runs back: device r has stages r and 2 p - 1 - r.
_FOLDED = frozenset(("ScheduleZBVZeroBubble", "ScheduleDualPipeV"))


def pieces(shapes: Shapes, schedule: str, rank: int, devices: int, virtual: int) -> dict[int, Piece]:
    """The stages of a device, by index, and what each has: all stages have as many units as any other, or one more.

    The first stage has the beginning of the root too (all root weights but the last, or the embedding), the last its end.
    """
    stages, units = devices * virtual, len(shapes.units) - 1
    mine = [rank, stages - 1 - rank] if schedule in _FOLDED else range(rank, stages, devices)
    return {i: Piece(range(1 + i * units // stages, 1 + (i + 1) * units // stages), first=i == 0, last=i == stages - 1) for i in mine}


class Stage(PipelineStage):
    """A stage that tells the recorder of each message whether it belongs to forward or to backward.

    Its shapes are given. ``alone``: the neighbours are not there, as on the fake backend, where what they would vote is not heard:
    all stages of known shapes vote for them (torch==2.13.0: pipelining/stage.py, ``_warmup_forward_vote``).
    """

    def __init__(self, module: nn.Module, index: int, count: int, recorder: Recorder, *, alone: bool, **more: Any) -> None:
        super().__init__(module, index, count, torch.device("cpu"), **more)
        self.recorder, self.alone = recorder, alone

    def _warmup_forward_vote(self, has_backward: bool, received_acc: Tensor | None = None) -> Tensor:
        return self._heard(super()._warmup_forward_vote(has_backward, received_acc))

    def _warmup_backward_result(self, received_result: Tensor | None = None) -> Tensor:
        return self._heard(super()._warmup_backward_result(received_result))

    def _heard(self, vote: Tensor) -> Tensor:
        return torch.ones_like(vote) if self.alone else vote

    def _marked(self, ops: list[dist.P2POp], phase: str) -> list[dist.P2POp]:
        for op in ops:
            self.recorder.mark(op.tensor, phase)
        return ops

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Activations of a micro-batch that this stage waits for."""
        return self._marked(super().get_fwd_recv_ops(fwd_chunk_id), "forward")

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Activations of a micro-batch that the next stage waits for."""
        return self._marked(super().get_fwd_send_ops(fwd_chunk_id), "forward")

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Gradients of a micro-batch that this stage waits for."""
        return self._marked(super().get_bwd_recv_ops(bwd_chunk_id), "backward")

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Gradients of a micro-batch that the stage before waits for."""
        return self._marked(super().get_bwd_send_ops(bwd_chunk_id), "backward")


def schedule(name: str, stages: Sequence[Stage], microbatches: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """The schedule of this class over a device's stages; its ``step`` runs one step without the update."""
    kind = getattr(schedules, name)
    single = issubclass(kind, schedules.PipelineScheduleSingle)
    return kind(stages[0] if single else list(stages), microbatches, loss_fn=loss)
