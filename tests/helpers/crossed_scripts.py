"""Pipelines of two stages and four micro-batches: in some of them gradients go back to another micro-batch, others only look so.

Each is what a stage does in one step. ``CROSSED`` and ``HANDED`` say what is wrong; ``STRAIGHT`` are right, or do on purpose what no order
mends.
"""

from __future__ import annotations

HEAD = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

N = 4


def train():
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7)
    xs, ys = torch.randn(N, 2, 6, generator=g), torch.randn(N, 2, 6, generator=g)

    def got(tag=0):
        there = torch.empty(2, 6)
        dist.recv(there, src=1 - rank, tag=tag)
        return there

    def put(tensor, tag=0):
        dist.send(tensor.detach().contiguous(), dst=1 - rank, tag=tag)

"""
FORWARD = "outs = []\nfor x in xs:\n    outs.append(model(x))\n    put(outs[-1])"
LOSSES = "ins = [got().requires_grad_() for _ in ys]\nlosses = [F.mse_loss(model(h), y) / N for h, y in zip(ins, ys)]"


def script(first: str, last: str, *, forward: str = FORWARD, losses: str = LOSSES, before: str = "", after: str = "opt.step()") -> str:
    """All of a script."""
    parts = [before, "if rank == 0:", *_in(forward), *_in(first), "else:", *_in(losses), *_in(last), after, "return model"]
    return HEAD + "".join(f"    {line}\n" for part in parts for line in part.splitlines())


def _in(text: str) -> list[str]:
    return [f"    {line}" for line in text.strip("\n").splitlines()]


BACK = "for out in outs:\n    out.backward(got())"
GIVE = "for h, loss in zip(ins, losses):\n    loss.backward()\n    put(h.grad)"
_LATER = "for loss in losses:\n    loss.backward()\n"
_REVERSED = "for h in reversed(ins):\n    put(h.grad)"
_ALL = "sum(losses).backward()\n"

CROSSED = {
    "the last one first": script("for out in reversed(outs):\n    out.backward(got())", GIVE),
    "two of them": script("for out in [outs[1], outs[0], *outs[2:]]:\n    out.backward(got())", GIVE),
    "sent in reverse after one backward": script(BACK, _ALL + _REVERSED),
    "around by one": script("for out in [*outs[1:], outs[0]]:\n    out.backward(got())", GIVE),
    "a stack that is taken from its end": script("while outs:\n    outs.pop().backward(got())", GIVE),
    "tags of another micro-batch": script(
        "for n, out in enumerate(outs):\n    out.backward(got(N - 1 - n))",
        "for n, (h, loss) in reversed([*enumerate(zip(ins, losses))]):\n    loss.backward()\n    put(h.grad, n)",
    ),
    "all in one tensor, in reverse": script(
        "every = torch.empty(N, 2, 6)\ndist.recv(every, src=1)\nfor out, one in zip(outs, every.flip(0)):\n    out.backward(one)",
        _LATER + "dist.send(torch.stack([h.grad for h in ins]), dst=0)",
    ),
    "Adam, by autograd.backward": script(
        "for out in reversed(outs):\n    torch.autograd.backward([out], [got()])", GIVE, before="opt = torch.optim.Adam(model.parameters())"
    ),
}
_LAST = (
    "there = xs.new_empty(2, 6)\nins, losses = [], []\nfor y in ys:\n"
    "    dist.recv(there, src=0)\n    ins.append(there.detach().requires_grad_())\n"
)
_ONE = _LAST + "    losses.append(F.mse_loss(model(ins[-1]), y) / N)"
_TWICE = "outs = []\nfor n, x in enumerate(xs):\n    outs.append(model(x))\n    put(outs[max(n - 1, 0)])"
_CLEARED = "for out in outs:\n    opt.zero_grad()\n    out.backward(got())"
_CLEARS = "for h, loss in zip(ins, losses):\n    opt.zero_grad()\n    loss.backward()\n    put(h.grad)"
UNSENT = {
    "one is sent twice, and the last one never": script(BACK, GIVE, forward=_TWICE),
    "the second is sent as the third, too": script(BACK, GIVE, forward=_TWICE.replace("max(n - 1, 0)", "1 if n == 2 else n")),
    "the first one again, with Adam": script(
        BACK, GIVE, forward=_TWICE.replace("max(n - 1, 0)", "n % 3"), before="opt = torch.optim.Adam(model.parameters())"
    ),
}
OVERWRITTEN = {
    "one tensor for all": script(BACK, GIVE, losses=_ONE),
    "two tensors in turn": script(
        BACK,
        GIVE,
        losses=_LAST.replace("there = xs.new_empty(2, 6)", "both = xs.new_empty(2, 2, 6)").replace(
            "for y in ys:\n", "for n, y in enumerate(ys):\n    there = both[n % 2]\n"
        )
        + "    losses.append(F.mse_loss(model(ins[-1]), y) / N)",
    ),
    "one tensor for all, with Adam": script(BACK, GIVE, losses=_ONE, before="opt = torch.optim.Adam(model.parameters())"),
    "irecv": script(BACK, GIVE, losses=_ONE.replace("dist.recv(there, src=0)", "dist.irecv(there, src=0).wait()")),
    "a sum over samples": script(BACK, GIVE, losses=_ONE.replace("y) / N", "y, reduction='sum')")),
}
CLEARED = {
    "zero before each pass": script(_CLEARED, _CLEARS),
    "zero before each pass, with AdamW": script(_CLEARED, _CLEARS, before="opt = torch.optim.AdamW(model.parameters())"),
    "zeros are written": script(
        _CLEARED.replace("grad()", "grad(set_to_none=False)"), _CLEARS.replace("grad()", "grad(set_to_none=False)")
    ),
    "None before each pass": script(
        _CLEARED.replace("opt.zero_grad()", "for p in model.parameters(): p.grad = None"),
        _CLEARS.replace("opt.zero_grad()", "for p in model.parameters(): p.grad = None"),
    ),
    "zero before each pass, one by one": script(
        "for x in xs:\n    opt.zero_grad()\n    out = model(x)\n    put(out)\n    out.backward(got())",
        "for y in ys:\n    opt.zero_grad()\n    h = got().requires_grad_()\n    (F.mse_loss(model(h), y) / N).backward()\n    put(h.grad)",
        forward="",
        losses="",
    ),
}
HANDED = {
    "one number in all places": script("for out in outs:\n    got()\n    out.backward(torch.ones_like(out))", GIVE),
    "the mean of it": script("for out in outs:\n    one = got()\n    out.backward(one.mean().expand_as(one))", GIVE),
    "a buffer that keeps what it had": script(
        "for x in xs:\n    out = model(x)\n    put(out)\n    out.backward(got())",
        "for y in ys:\n    buffer.data.copy_(got())\n    (F.mse_loss(model(buffer), y) / N).backward()\n    put(buffer.grad)",
        forward="",
        losses="buffer = torch.empty(2, 6).requires_grad_()",
    ),
    "the sum of all that are there": script(BACK, GIVE.replace("put(h.grad)", "put(sum(i.grad for i in ins if i.grad is not None))")),
}
STRAIGHT = {
    "in order": script(BACK, GIVE),
    "both from the last one": script(
        "for out in reversed(outs):\n    out.backward(got())",
        "for h, loss in reversed([*zip(ins, losses)]):\n    loss.backward()\n    put(h.grad)",
    ),
    "sent in another order than made": script(
        "for out in reversed(outs):\n    out.backward(got())", _LATER + "for h in ins[::-1]:\n    put(h.grad)"
    ),
    "received in another order": script(
        "there = [got() for _ in outs]\nfor out, one in zip(reversed(outs), reversed(there)):\n    out.backward(one)", GIVE
    ),
    "a loss that is scaled": script(
        BACK, GIVE.replace("loss.", "(loss * 1024)."), after="for p in model.parameters():\n    p.grad /= 1024\nopt.step()"
    ),
    "gradients in bfloat16": script("for out in outs:\n    out.backward(got().bfloat16().float())", GIVE),
    "gradients times a tenth": script("for out in outs:\n    out.backward(got() * 0.1)", GIVE),
    "clipped on the way": script("for out in outs:\n    one = got()\n    out.backward(one / one.norm().clamp(min=1e-3))", GIVE),
    "noise": script("for out in outs:\n    one = got()\n    out.backward(one + 0.01 * torch.randn_like(one))", GIVE),
    "late by one on purpose": script("late = torch.zeros(2, 6)\nfor out in outs:\n    out.backward(late)\n    late = got()", GIVE),
    "ones in a pass of other samples that is thrown away": script(
        "for out in outs:\n    got()\n    out.backward(torch.ones_like(out))\nmodel.zero_grad()\nxs -= 1\n" + FORWARD + "\n" + BACK,
        GIVE + "\nmodel.zero_grad()\n" + LOSSES + "\n" + GIVE,
        before="xs += 1",
    ),
    "nothing, as the first stage is frozen": script("for out in outs:\n    out.backward(got() * 0)", GIVE),
    "signs": script("for out in outs:\n    one = got()\n    out.backward(one.sign() * one.abs().mean())", GIVE),
    "the same samples twice": script(
        "for out in [outs[1], outs[0], *outs[2:]]:\n    out.backward(got())", GIVE, before="xs[1], ys[1] = xs[0], ys[0]"
    ),
    "crossed in a pass of other samples that is thrown away": script(
        "for out in reversed(outs):\n    out.backward(got())\nmodel.zero_grad()\nxs -= 1\n" + FORWARD + "\n" + BACK,
        GIVE + "\nmodel.zero_grad()\n" + LOSSES + "\n" + GIVE,
        before="xs += 1",
    ),
    "the largest elements, and what is left added to the next": script(
        "for out in outs:\n    out.backward(got())",
        "left = torch.zeros(2, 6)\nfor h, loss in zip(ins, losses):\n    loss.backward()\n    left += h.grad\n"
        "    most = left * (left.abs() >= left.abs().median())\n    left -= most\n    put(most)",
    ),
    "a loss over pairs of micro-batches": script(
        BACK,
        _ALL + "for h in ins:\n    put(h.grad)",
        losses="ins = [got().requires_grad_() for _ in ys]\nouts = [*map(model, ins)]\n"
        "losses = [(outs[0] * outs[1]).sum(), (outs[2] * outs[3]).sum()]",
    ),
    "computed again in backward": script(
        "for x in xs:\n    model(x).backward(got())", GIVE, forward="for x in xs:\n    with torch.no_grad():\n        put(model(x))"
    ),
    "one buffer, one by one": script(
        "for x in xs:\n    out = model(x)\n    put(out)\n    out.backward(got())",
        "for y in ys:\n    buffer.grad = None\n    buffer.data.copy_(got())\n    (F.mse_loss(model(buffer), y) / N).backward()\n"
        "    put(buffer.grad)",
        forward="",
        losses="buffer = torch.empty(2, 6).requires_grad_()",
    ),
    "samples that are given back in another order": script(
        "for out in reversed(outs):\n    out.backward(got())",
        "for h, loss in zip(ins, losses):\n    loss.backward()\n    put(h.grad)",
        losses=LOSSES.replace("zip(ins, ys)", "zip(ins, ys.flip(0))"),
        forward="outs = [model(x) for x in xs]\nfor out in reversed(outs):\n    put(out)",
    ),
    "the last pass alone, of losses that are not divided": script(_CLEARED, _CLEARS.replace("loss.", "(loss * N).")),
    "passes of a large loss are left out": script(
        "for out in outs:\n    one = got()\n    if one.norm().item() > 0.03:\n        opt.zero_grad()\n    out.backward(one)",
        GIVE.replace("loss.backward()", "(opt.zero_grad() if loss.item() > 0.3 else None, loss.backward())"),
    ),
    "norms of each pass are shown": script(
        _CLEARED + "\n    norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())\nprint(norms)",
        _CLEARS + "\n    norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())\nprint(norms)",
        before="norms = []",
    ),
    "sums of passes by hand": script(
        _CLEARED + "\n    for s, p in zip(sums, model.parameters()):\n        s += p.grad",
        _CLEARS + "\n    for s, p in zip(sums, model.parameters()):\n        s += p.grad",
        before="sums = [torch.zeros_like(p) for p in model.parameters()]",
        after="for s, p in zip(sums, model.parameters()):\n    p.grad = s\nopt.step()",
    ),
    "a micro-batch for each stage": script(
        _CLEARED.replace("opt.zero", "if n < 3:\n        opt.zero").replace("for out in outs", "for n, out in enumerate(outs)")
        + "\n    if n == 2:\n        one = [p.grad.clone() for p in model.parameters()]\n"
        "for p, g in zip(model.parameters(), one):\n    p.grad = g",
        _CLEARS,
    ),
    "warming up without a division": script(
        BACK.replace("outs", "outs") + "\nopt.zero_grad()\n" + FORWARD + "\n" + BACK,
        GIVE + "\nopt.zero_grad()\n" + LOSSES + "\n" + GIVE,
    ),
    "one tensor for all, of which each is a copy": script(BACK, GIVE, losses=_ONE.replace(".detach()", ".clone()")),
    "one tensor for all, that backward does not read": script(BACK, GIVE, losses=_ONE.replace("model(ins[-1])", "model(ins[-1] + 1)")),
    "one tensor for all, one by one": script(
        "for x in xs:\n    out = model(x)\n    put(out)\n    out.backward(got())",
        "there = torch.empty(2, 6)\nfor y in ys:\n    dist.recv(there, src=0)\n    h = there.detach().requires_grad_()\n"
        "    (F.mse_loss(model(h), y) / N).backward()\n    put(h.grad)",
        forward="",
        losses="",
    ),
    "one tensor for all in a pass that is thrown away": script(
        BACK + "\nopt.zero_grad()\nxs -= 1\n" + FORWARD + "\n" + BACK,
        GIVE + "\nopt.zero_grad()\n" + LOSSES + "\n" + GIVE,
        losses=_ONE,
        before="xs += 1",
    ),
    "late by one, and the first one again": script(
        "for step in range(3):\n    for x in xs:\n        now = model(x + step)\n        put(now if late is None else late)\n"
        "        now.backward(got())\n        late = now\n    opt.step()\n    opt.zero_grad()",
        "for step in range(3):\n    for y in ys:\n        h = got().requires_grad_()\n        (F.mse_loss(model(h), y) / N).backward()\n"
        "        put(h.grad)\n    opt.step()\n    opt.zero_grad()",
        before="late = None",
        after="",
        forward="",
        losses="",
    ),
    "two losses of one micro-batch, in a pass each": script(
        "for out in outs:\n    out.backward(got(), retain_graph=True)\n    out.backward(got())",
        "for h, y in zip(ins, ys):\n    for to in (y, -y):\n        h.grad = None\n"
        "        F.mse_loss(model(h), to).backward()\n        put(h.grad)",
    ),
    "in bfloat16, there and back": script(
        "for out in outs:\n    out.backward(got())", GIVE, forward=FORWARD.replace("put(outs[-1])", "put(outs[-1].bfloat16().float())")
    ),
    "all in one tensor": script(
        BACK,
        GIVE,
        forward="outs = [model(x) for x in xs]\nput(torch.stack([o.detach() for o in outs]))",
        losses="every = torch.empty(N, 2, 6)\ndist.recv(every, src=0)\nins = [h.detach().requires_grad_() for h in every]\n"
        "losses = [F.mse_loss(model(h), y) / N for h, y in zip(ins, ys)]",
    ),
    "weights that are swapped for backward": script(
        "for out in outs:\n    out.backward(got())",
        "for p in model.parameters():\n    p.data.mul_(0.9)\n" + GIVE + "\nfor p in model.parameters():\n    p.data.div_(0.9)",
    ),
    "no gradient of a second tensor": script(
        BACK,
        GIVE,
        forward=FORWARD + "\n    put(outs[-1] + x)",
        losses="ins, losses = [], []\nfor y in ys:\n    ins.append(got().requires_grad_())\n    skip = got()\n"
        "    losses.append(F.mse_loss(model(ins[-1]) + skip, y) / N)",
    ),
    "the first stage is not trained": script("pass", "for loss in losses:\n    loss.backward()"),
    "the last micro-batch is held out": script("for out in outs[:-1]:\n    out.backward(got())", GIVE.replace("zip(ins,", "zip(ins[:-1],")),
    "functions that send, and make no gradient of what they are given": script(
        "for x in xs:\n    Send.apply(model(x)).backward()",
        "for y in ys:\n    (F.mse_loss(model(Receive.apply(torch.zeros((), requires_grad=True))), y) / N).backward()",
        forward="",
        losses="",
        before="class Send(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        put(x)\n"
        "        return x.new_zeros(())\n"
        "    @staticmethod\n    def backward(ctx, _):\n        return got()\n"
        "class Receive(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, _):\n        return got()\n"
        "    @staticmethod\n    def backward(ctx, gradient):\n        put(gradient)",
    ),
}
