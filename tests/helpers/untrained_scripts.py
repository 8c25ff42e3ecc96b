"""Steps of optimizers that have other parameters than the model, and others that only look like it. As in ``copies_scripts.py``."""

from __future__ import annotations

from copies_scripts import steps

_STEP = "opt.zero_grad()\nF.mse_loss(net(x), y).backward()\nopt.step()"
_OWN = "net.zero_grad()\nF.mse_loss(net(x), y).backward()\n"

UNTRAINED = {
    "a copy under DDP": steps(_STEP, opt="torch.optim.SGD(params, lr=0.1)\nnet = DDP(copy.deepcopy(model))"),
    "FSDP after the optimizer": steps(
        _STEP,
        opt="torch.optim.AdamW(params, lr=0.1)\nfully_shard(net)",
        before=("from torch.distributed.fsdp import fully_shard\nnet = model"),
    ),
    "FSDP after the optimizer, one step": steps(
        _STEP,
        count=1,
        opt="torch.optim.SGD(params, lr=0.1)\nfor m in (net[0], net):\n    fully_shard(m)",
        before=("from torch.distributed.fsdp import fully_shard\nnet = model"),
    ),
    "parameters that are made anew": steps(
        _OWN + "average([*net.parameters()])\nopt.step()",
        before="net = model",
        opt=(
            "torch.optim.SGD(params, lr=0.1)\nfor m in (net[0], net[2]):\n"
            "    m.weight, m.bias = nn.Parameter(m.weight.data.clone()), nn.Parameter(m.bias.data.clone())"
        ),
    ),
}
"""By what is wrong."""

TRAINED = {
    "DDP after the optimizer": steps(_STEP, opt="torch.optim.SGD(params, lr=0.1)\nnet = DDP(model)"),
    "FSDP, and then the optimizer": steps(
        _STEP,
        opt="torch.optim.SGD(net.parameters(), lr=0.1)",
        before=("from torch.distributed.fsdp import fully_shard\nnet = model\nfully_shard(net)"),
    ),
    "an optimizer whose parameters are put in": steps(
        _STEP, opt=("torch.optim.SGD(params, lr=0.1)\nnet = DDP(copy.deepcopy(model))\nopt.param_groups[0]['params'] = [*net.parameters()]")
    ),
    "gradients of a copy": steps(
        _OWN + "for p, q in zip(params, net.parameters()):\n    p.grad = q.grad\naverage(params)\nopt.step()\n"
        "for p, q in zip(params, net.parameters()):\n    q.data.copy_(p.data)",
        before="net = copy.deepcopy(model)",
    ),
    "gradients of a new copy": steps(
        "net = copy.deepcopy(model)\n" + _OWN + "for p, q in zip(params, net.parameters()):\n    p.grad = q.grad\n"
        "average(params)\nopt.step()"
    ),
    "updates by hand": steps(
        _OWN + "average([*net.parameters()])\nfor p in net.parameters():\n    p.data -= 0.1 * p.grad\nopt.step()",
        before="net = copy.deepcopy(model)",
    ),
    "twins, of which the other one waits": steps(
        "F.mse_loss(net(x), y).backward()\nother.step()\nif step == 7:\n    average([*net.parameters()])\n    opt.step()",
        before="net = copy.deepcopy(model)\nother = torch.optim.SGD(params, lr=0.1)",
        opt="torch.optim.SGD(net.parameters(), lr=0.1)",
        count=8,
    ),
    "a rate of zero": steps(_OWN + "average(params)\nopt.step()", before="net = model", opt="torch.optim.SGD(params, lr=0.0)"),
    "a teacher that is run first": steps(
        "with torch.no_grad():\n    z = teacher(x)\nopt.zero_grad()\nF.mse_loss(net(x), z).backward()\nopt.step()",
        before="teacher, net = copy.deepcopy(model), DDP(model)\nnn.init.ones_(teacher[0].bias)",
    ),
    "gradients that are only shown": steps(_OWN + "print(params[0].grad.norm())", before="net = model"),
}
