"""Steps of several backward passes, of which some are dropped; and others of which each counts, or is left out on purpose. As in
``copies_scripts.py``."""

from __future__ import annotations

from copies_scripts import steps

_STEP = "average(params)\nopt.step()"
_PASS = "(F.mse_loss(model(x + k), y) / 4).backward()"


def _passes(inside: str, *, zero: str = "model.zero_grad()", update: str = _STEP, **other: object) -> str:
    lines = "".join(f"\n    {line}" for line in inside.strip("\n").splitlines())
    return steps(f"{zero}\nfor k in range(4):{lines}\n{update}", **other)  # type: ignore[arg-type]


DROPPED = {
    "zero with each pass": _passes("opt.zero_grad()\n" + _PASS),
    "zero with each pass, one step, averaged by DDP": _passes(
        "for p in params:\n    p.grad = None\n" + _PASS.replace("model(", "ddp("), update="opt.step()", before="ddp = DDP(model)", count=1
    ),
    "zero with each pass, with AdamW": _passes(
        "opt.zero_grad()\n" + _PASS,
        update="average(params)\nnn.utils.clip_grad_norm_(params, 0.01)\nopt.step()",
        opt="torch.optim.AdamW(params, lr=0.01)",
    ),
    "zero with each pass, and owners": _passes(
        "model.zero_grad()\n" + _PASS,
        update=_STEP + "\nfor i, p in enumerate(params):\n    dist.broadcast(p.data, i % world)",
        opt="torch.optim.Adam(mine, lr=0.01)",
    ),
    "zeros are written, with momentum": _passes(
        "opt.zero_grad(set_to_none=False)\n" + _PASS, opt="torch.optim.SGD(params, lr=0.1, momentum=0.9)"
    ),
    "the first pass is kept": _passes(
        "model.zero_grad()\n" + _PASS + "\nif k == 0:\n    kept = [p.grad.clone() for p in params]",
        update="for p, g in zip(params, kept):\n    p.grad = g\n" + _STEP,
    ),
    "each sum of all ranks takes the place of the last one": _passes(
        "model.zero_grad()\n" + _PASS + "\nflat = torch.cat([p.grad.flatten() for p in params])\ndist.all_reduce(flat)\ntotal.copy_(flat)",
        update="total /= world\nwith torch.no_grad():\n    for p, g in zip(params, total.split([p.numel() for p in params])):\n"
        "        p -= 0.1 * g.view_as(p)",
        before="total = torch.zeros(sum(p.numel() for p in params))",
    ),
    "every other pass": _passes("if k % 2 == 0:\n    model.zero_grad()\n" + _PASS, count=1),
    "three passes, by a mean that is scaled": _passes("model.zero_grad()\n(F.mse_loss(model(x + k), y) * 0.25).backward()"),
    "hooks that reduce": _passes(
        "model.zero_grad()\n" + _PASS,
        update="for p in params:\n    p.grad /= world\nopt.step()",
        before="for p in params:\n    p.register_post_accumulate_grad_hook(lambda q: dist.all_reduce(q.grad))",
    ),
}
"""By what is wrong."""

COUNTED = {
    "sums of all passes": _passes(_PASS),
    "sums by hand": _passes(
        "model.zero_grad()\n" + _PASS + "\nfor s, p in zip(sums, params):\n    s += p.grad",
        zero="sums = [torch.zeros_like(p) for p in params]",
        update="for s, p in zip(sums, params):\n    p.grad = s\n" + _STEP,
    ),
    "sums by NumPy": _passes(
        "model.zero_grad()\n" + _PASS + "\nfor s, p in zip(sums, params):\n    s += p.grad.numpy()",
        zero="sums = [torch.zeros_like(p).numpy() for p in params]",
        update="for s, p in zip(sums, params):\n    p.grad = torch.from_numpy(s)\n" + _STEP,
    ),
    "sums by Adam": _passes(_PASS, opt="torch.optim.Adam(params, lr=0.01)"),
    "means of lists": _passes(
        "model.zero_grad()\n" + _PASS + "\nfor s, p in zip(lists, params):\n    s.append(p.grad)",
        zero="lists = [[] for p in params]",
        update="for s, p in zip(lists, params):\n    p.grad = torch.stack(s).sum(0)\n" + _STEP,
    ),
    "passes of a large loss are left out": _passes(
        "loss = F.mse_loss(model(x + k), y) / 4\nif loss.item() > 0.5 - k:\n    model.zero_grad()\nloss.backward()"
    ),
    "passes of a large gradient are left out": _passes(
        "loss = F.mse_loss(model(x + k), y) / 4\nloss.backward()\nif torch.stack([p.grad.norm() for p in params]).norm() > 0.1 - k:\n"
        "    if k < 3:\n        model.zero_grad()"
    ),
    "warming up": _passes("model.zero_grad()\nF.mse_loss(model(x + k), y).backward()\nif step == 0 and k < 3:\n    continue", count=1),
    "warming up with the same samples": _passes("model.zero_grad()\n(F.mse_loss(model(x), y) / 4).backward()", count=1),
    "warming up by half of a square": steps(
        "for k in range(2):\n    model.zero_grad()\n    (F.mse_loss(model(x + k), y) / 2).backward()\n" + _STEP, count=1
    ),
    "norms of gradients are shown": _passes(
        "model.zero_grad()\n" + _PASS + "\nnorms.append(torch.stack([p.grad.norm() for p in params]).norm())",
        before="norms = []",
        after="print(norms)",
    ),
    "gradients are kept, and looked at": _passes(
        "model.zero_grad()\n" + _PASS + "\nseen.append([p.grad.clone() for p in params])",
        before="seen = []",
        after="print([float(torch.stack(one).std()) for one in zip(*(s[:1] for s in seen))])",
    ),
    "a running mean of gradients": _passes(
        "model.zero_grad()\n" + _PASS + "\nfor m, p in zip(mean, params):\n    m.lerp_(p.grad, 0.1)",
        before="mean = [torch.zeros_like(p) for p in params]",
        update="for m, p in zip(mean, params):\n    p.grad += m\n" + _STEP,
    ),
    "a layer for each pass": _passes(
        _PASS + "\nfor i, p in enumerate(params):\n    if i == k:\n        kept.append(p.grad.clone())\nmodel.zero_grad()",
        zero="kept = []\nmodel.zero_grad()",
        update="for p, g in zip(params, kept):\n    p.grad = g\n" + _STEP,
    ),
    "each pass is clipped, and added": _passes(
        "model.zero_grad()\n" + _PASS + "\nnn.utils.clip_grad_norm_(params, 0.05)\nfor s, p in zip(sums, params):\n    s.add_(p.grad)",
        zero="sums = [torch.zeros_like(p) for p in params]",
        update="for s, p in zip(sums, params):\n    p.grad = s\n" + _STEP,
    ),
    "a step of ascent first": _passes(
        "model.zero_grad()\n"
        + _PASS
        + "\nif k == 2:\n    with torch.no_grad():\n        for p in params:\n            p += 0.01 * p.grad\n"
        "    back = [p.grad.clone() for p in params]",
        update="with torch.no_grad():\n    for p, b in zip(params, back):\n        p -= 0.01 * b\n" + _STEP,
    ),
    "passes that are held back until others have theirs": _passes(
        "model.zero_grad()\n" + _PASS + "\nfor q, p in zip(queue, params):\n    q.append(p.grad)",
        before="queue = [[] for p in params]",
        update="for q, p in zip(queue, params):\n    p.grad = q.pop()\n" + _STEP + "\nif step == 3:\n    for q, p in zip(queue, params):\n"
        "        p.grad = sum(q)\n    " + _STEP.replace("\n", "\n    "),
    ),
    "two networks that play": steps(
        "for k in range(4):\n    critic.zero_grad()\n    model.zero_grad()\n    (F.softplus(critic(model(x + k))).mean() / 4).backward()\n"
        "    average([*critic.parameters()])\n    if k < 3:\n        od.step()\n" + _STEP,
        before="critic = nn.Linear(3, 1)\nod = torch.optim.SGD(critic.parameters(), lr=0.1)",
        count=1,
    ),
}
