"""Steps in which updates, or all that a rank does, are lost; and others that only look like it. As in ``copies_scripts.py``."""

from __future__ import annotations

from copies_scripts import steps

_PLAIN = """
model.zero_grad()
F.mse_loss(model(x), y).backward()
average(params)
"""
_OWN = """
model.zero_grad()
F.mse_loss(model(x), y).backward()
"""
_OWNERS = "torch.optim.SGD(mine, lr=0.1, momentum=0.9)"
_SEND = "for i, p in enumerate(params):\n    dist.broadcast(p.data, i % world)\n"
_NEIGHBOUR = "for i, p in enumerate(params):\n    dist.broadcast(p.data, (i + 1) % world)\n"
_FROM_0 = "for p in params:\n    dist.broadcast(p.data, 0)\n"
_SAVED = "saved = [p.data.clone() for p in params]\n"
_BACK = "for p, s in zip(params, saved):\n    p.data.copy_(s)\n"

LOST = {
    "sent by the neighbour of the owner": steps(_PLAIN + "opt.step()\n" + _NEIGHBOUR, opt="torch.optim.Adam(mine, lr=0.01)"),
    "sent by the neighbour, one step": steps("dist.barrier()" + _PLAIN + "opt.step()\n" + _NEIGHBOUR, opt=_OWNERS, count=1, before=_FROM_0),
    "rank 0 sends all": steps(_PLAIN + "opt.step()\nprint(p_loss := float(x.sum()))\n" + _FROM_0, opt=_OWNERS),
    "by hand, sent by rank 0": steps(
        _PLAIN + "with torch.no_grad():\n    for p in mine:\n        p -= 0.1 * p.grad\n" + _FROM_0,
    ),
    "the neighbour's copy is taken": steps(
        _PLAIN
        + """
opt.step()
for i, p in enumerate(params):
    every = [torch.zeros_like(p) for _ in range(world)]
    dist.all_gather(every, p.data)
    p.data.copy_(every[(i + 1) % world])
""",
        opt=_OWNERS,
    ),
    "flattened copies, the neighbour's": steps(
        _PLAIN
        + """
opt.step()
for i, p in enumerate(params):
    out = p.new_empty(world * p.numel())
    dist.all_gather_into_tensor(out, p.data.view(-1))
    with torch.no_grad():
        p.copy_(out.view(world, *p.shape)[1 - i % world])
""",
        opt="torch.optim.AdamW(mine, lr=0.01)",
    ),
    "rank 1 updates, and rank 0 sends": steps(_PLAIN + "if rank == 1:\n    opt.step()\n" + _FROM_0),
    "gradients of rank 0 alone, by hand": steps(
        _OWN + "with torch.no_grad():\n    for p in params:\n        p.add_(p.grad, alpha=-0.1)\n" + _FROM_0, count=1
    ),
    "gradients of rank 0 alone, two micro-batches": steps(
        _OWN + "F.mse_loss(model(x + 1), y).backward()\nopt.step()\n" + _FROM_0, count=1, opt="torch.optim.AdamW(params, lr=0.01)"
    ),
    "gradients of rank 1 alone": steps(_OWN + "opt.step()\nfor p in reversed(params):\n    dist.broadcast(p.data, 1)\n", count=1),
}
"""By what is wrong."""

LEFT = {
    "owners send": steps(_PLAIN + "opt.step()\n" + _SEND, opt=_OWNERS),
    "owners send, and all have an average of their own at the end": steps(
        _PLAIN + "opt.step()\n" + _SEND + "for e, p in zip(mean, params):\n    e.lerp_(p.data, 0.1)\n",
        before=_SAVED.replace("saved", "mean"),
        opt=_OWNERS,
        after=_BACK.replace("saved", "mean"),
    ),
    "all go back after a bad step": steps(
        _SAVED + _PLAIN + "opt.step()\n" + _SEND + "if step != 1:\n    " + _BACK.replace("\n    ", "\n        "), opt=_OWNERS
    ),
    "rank 0 goes back, and sends": steps(
        _SAVED + _PLAIN + "opt.step()\nif rank == 0 and step == 0:\n    " + _BACK.replace("\n    ", "\n        ") + _FROM_0
    ),
    "rank 0 goes back after owners have sent, one step": steps(
        _SAVED + _PLAIN + "opt.step()\n" + _SEND + "if rank == 0:\n    " + _BACK.replace("\n    ", "\n        ") + _FROM_0,
        opt=_OWNERS,
        count=1,
    ),
    "rank 0 loads the best, and sends": steps(
        _PLAIN + "opt.step()\n" + _SEND,
        before="best = copy.deepcopy(model.state_dict())",
        after="if rank == 0:\n    model.load_state_dict(best)\n" + _FROM_0,
        opt=_OWNERS,
        count=1,
    ),
    "rank 1, that owns half, sends what it has from before": steps(
        _SAVED + _PLAIN + "opt.step()\nafter = F.mse_loss(model(x), y)\ndist.all_reduce(after)\n"
        "if after > 0:\n    for p, s in zip(params, saved):\n        dist.broadcast(s, 1)\n        p.data.copy_(s)\n",
        opt=_OWNERS,
        count=1,
    ),
    "learners that come back": steps(
        _SAVED + "for k in range(2):\n    model.zero_grad()\n    F.mse_loss(model(x + k), y).backward()\n    inner.step()\n"
        "moved = [p.data.clone() for p in params]\n" + _BACK + "for p, m, s in zip(params, moved, saved):\n"
        "    dist.all_reduce(m)\n    p.data.add_(m / world - s, alpha=0.5)\n",
        opt="None",
        before="inner = torch.optim.SGD(params, lr=0.05)",
    ),
    "weights that look ahead": steps(
        _PLAIN
        + "opt.step()\n"
        + _SEND
        + "if step % 2:\n    for p, s in zip(params, slow):\n        s.lerp_(p.data, 0.5)\n        p.data.copy_(s)\n",
        before="slow = [p.data.clone() for p in params]",
        opt=_OWNERS,
    ),
    "weights that are moved by their owners": steps(
        _PLAIN
        + _SAVED
        + "with torch.no_grad():\n    for p in mine:\n        p += 0.05 * p.grad\n"
        + _SEND
        + _PLAIN
        + _BACK
        + "opt.step()\n"
        + _SEND,
        opt=_OWNERS,
    ),
    "masters of the owners": steps(
        _PLAIN + "for m, p in zip(masters, mine):\n    m.grad = p.grad.double()\nopt.step()\n"
        "for m, p in zip(masters, mine):\n    p.data.copy_(m.data)\n" + _SEND,
        before="masters = [p.data.double().requires_grad_() for p in mine]",
        opt="torch.optim.Adam(masters, lr=0.01)",
    ),
    "a rate that begins with zero": steps(
        "opt.param_groups[0]['lr'] = 0.1 * step" + _PLAIN + "opt.step()\n" + _SEND, opt="torch.optim.SGD(mine, lr=0.0)"
    ),
    "a step that is left out": steps(_PLAIN + "if step:\n    opt.step()\n" + _SEND, opt=_OWNERS),
    "weights that nothing reads and that decay": steps(
        _PLAIN
        + "for p in idle.parameters():\n    p.grad = torch.zeros_like(p)\nopt.step()\n"
        + _SEND
        + "for p in idle.parameters():\n    dist.broadcast(p.data, 0)\n",
        before="idle = nn.Linear(3, 3)",
        opt="torch.optim.AdamW([*mine, *(idle.parameters() if rank else [])], lr=0.01)",
    ),
    "drift is mended by rank 0": steps(_PLAIN + "opt.step()\n" + _FROM_0, count=1),
    "all have the same samples": steps("x, y = batch(0, step)" + _OWN + "opt.step()\n" + _FROM_0, count=1),
    "dropout of the same samples": steps(
        "x, y = batch(0, step)\nmodel.zero_grad()\nF.mse_loss(F.dropout(model(x), 0.5), y).backward()\nopt.step()\n" + _FROM_0,
        count=1,
        before="torch.manual_seed(rank)",
    ),
    "the best of some": steps(
        _OWN + "opt.step()\nfit = [torch.zeros(1) for _ in range(world)]\nwith torch.no_grad():\n"
        "    dist.all_gather(fit, F.mse_loss(model(x), y)[None])\n"
        "best = int(torch.cat(fit).argmin())\nfor p in params:\n    dist.broadcast(p.data, best)\n",
        count=1,
    ),
    "each saves what it has trained": steps(
        _OWN + "opt.step()\ntorch.save(model.state_dict(), io.BytesIO())\n" + _FROM_0, before="import io", count=1
    ),
    "each shows what it has trained": steps(_OWN + "opt.step()\nF.mse_loss(model(x), y).item()\n" + _FROM_0, count=1),
    "one of all, that is drawn": steps(
        _OWN + "opt.step()\none = int(torch.randint(world, (1,)))\nfor p in params:\n    dist.broadcast(p.data, one)\n", count=1
    ),
    "one after the other": steps(_OWN + "opt.step()\nfor p in params:\n    dist.broadcast(p.data, step % world)\n"),
    "each keeps its own, and looks at that of rank 0": steps(
        _OWN + "opt.step()\nown = copy.deepcopy(model)\n" + _FROM_0 + "F.mse_loss(model(x), y).item()\n", count=1
    ),
    "updates that are sent a step later": steps(
        "if step:\n    for p, n in zip(params, new):\n        p.data.copy_(n)\n"
        + _PLAIN
        + "old = [p.data.clone() for p in mine]\nopt.step()\nnew = [p.data.clone() for p in params]\n"
        "for p, o in zip(mine, old):\n    p.data.copy_(o)\n"
        "for i, n in enumerate(new):\n    dist.broadcast(n, i % world)\n",
        opt=_OWNERS,
    ),
    "an average over ranks after some steps": steps(
        _OWN + "opt.step()\nif step % 2:\n    for p in params:\n        dist.all_reduce(p.data)\n        p.data /= world\n"
    ),
    "copies in another type": steps(
        _PLAIN + "opt.step()\nfor i, p in enumerate(params):\n    sent = p.data.bfloat16()\n"
        "    dist.broadcast(sent, i % world)\n    p.data.copy_(sent)\n",
        opt=_OWNERS,
    ),
}
