"""Which weights an implementation takes, and with which options: what PyTorch refuses, and what was not measured."""

from __future__ import annotations

from placeproof.core.diagnostics import Problems
from placeproof.core.shapes import Unit
from placeproof.cost.exact.setting import Setting

_LEFT = "describe a model whose parameters are all trained, used and of one type"


#: What every batch norm keeps that has running statistics.
_COUNTS = "int64"


def check_weights(setting: Setting, problems: Problems) -> None:
    """Note weights that the implementation does not take, or of which it is not known what it makes of them."""
    shapes, how = setting.shapes, setting.states
    split = setting.hidden is not None and setting.mesh[setting.hidden] > 1
    if not shapes.plain and (split or setting.stages > 1):
        message = f"what `{setting.strategy.name}` makes of parameters that are frozen, unused or of types of their own was not measured"
        problems.add("PP101", message, help=_LEFT)
    said = {w.dtype for w in shapes.weights if w.dtype}
    if (kind := setting.options.get("dtype")) is not None and said - {kind}:
        message = f"{shapes.name} says the types of its parameters, {', '.join(sorted(said))}: `dtype` is {kind}"
        problems.add("PP104", message, help="leave `dtype` out")
    if not any(w.learns for w in shapes.weights):
        problems.add("PP202", f"no parameter of {shapes.name} gets a gradient", help="leave out of `frozen` what is trained")
    if setting.stages == 1:
        for unit in shapes.units:
            _check_unit(setting, unit, problems)
    mixed = setting.options.get("param_dtype") or setting.options.get("reduce_dtype")
    if how.cut == "flat" and mixed and _COUNTS in dict(shapes.buffers or ()):
        message = f"{shapes.name} counts in buffers, as batch norms do, which `{how.name}` wraps by themselves under mixed precision"
        problems.add("PP101", message, help="leave `param_dtype` and `reduce_dtype` out")
    if how.extras:
        _check_ddp(setting, problems)
    _check_optimizer(setting, problems)
    _check_passes(setting, problems)


def _check_unit(setting: Setting, unit: Unit, problems: Problems) -> None:
    """FSDP of either kind refuses scalars: torch==2.13.0:torch/distributed/fsdp/_fully_shard/_fsdp_init.py and fsdp/_init_utils.py. The
    trained parameters of a unit have one type (_fully_shard/_fsdp_param_group.py, ``_init_mp_dtypes``), and what lies in a flat
    tensor is alike (_flat_param.py, ``_validate_tensors_to_flatten``)."""
    cut, name, options = setting.states.cut, setting.states.name, setting.options
    if cut not in ("rows", "flat"):
        return
    for weight in unit.weights:
        if not weight.shape:
            message = f"`{weight.name}` is a scalar, and `{name}` does not take scalars: PyTorch refuses them"
            problems.add("PP202", message, help=f"make it a tensor of one element: `{weight.name}` = [1]")
    one = unit.weights if cut == "flat" else [w for w in unit.weights if w.trained]
    if len(kinds := {setting.kind(w) for w in one}) > 1:
        does = "flatten" if cut == "flat" else "reduce"
        message = f"unit `{unit.name}` has parameters of {' and '.join(sorted(kinds))}, which PyTorch refuses to {does}"
        problems.add("PP202", message, help="list those of another type as a unit of their own")
    if cut == "flat" and setting.cut_axes and unit.weights and not unit.backward:
        message = f"when `{name}` gathers `{unit.name}`, whose output requires no gradient, was not measured"
        problems.add(
            "PP101", message, help="`fully_shard` is known, `--with fsdp2`; or leave out `backward = false` if backward comes there"
        )
    if cut == "flat" and options.get("use_orig_params") and any(w.idle for w in unit.weights):
        message = f"what `{name}` leaves as gradients of parameters of `{unit.name}` that are not used was not measured"
        problems.add("PP101", message, help="`--option use_orig_params=false`")
    if cut == "flat" and not options.get("use_orig_params") and len({w.trained for w in unit.weights}) > 1:
        message = f"unit `{unit.name}` has parameters that are frozen and others that are not, which PyTorch refuses to flatten"
        problems.add("PP202", message, help="`--option use_orig_params=true`")


def _check_ddp(setting: Setting, problems: Problems) -> None:
    """Whoever does not say that some parameters may not be used, has an error of PyTorch in the second step."""
    options = setting.options
    idle = [w.name for w in setting.shapes.weights if w.idle]
    if idle and not options.get("find_unused") and not options.get("static_graph"):
        message = f"`{idle[0]}` gets no gradient: DistributedDataParallel waits for it, and PyTorch ends in an error"
        problems.add("PP202", message, help="`--option find_unused=true`, or `--option static_graph=true`")
    given = [w for w in setting.shapes.weights if setting.given(w)]
    if setting.states.cut == "weights" and len(kinds := {setting.kind(w) for w in given}) > 1:
        message = f"ZeroRedundancyOptimizer does not take parameters of {' and '.join(sorted(kinds))}: PyTorch refuses them"
        problems.add("PP202", message, help="give those that are trained one type")
    if options.get("bucket_view") and not all(w.learns for w in given):
        message = "what `bucket_view` makes of parameters without a gradient was not measured"
        problems.add("PP101", message, help="leave `bucket_view` out")
    if options.get("static_graph") and options.get("no_sync"):
        message = "DistributedDataParallel with static_graph counts on a reduction in each pass: PyTorch ends in an error"
        problems.add("PP202", message, help="leave one of `static_graph` and `no_sync` out")


def _check_optimizer(setting: Setting, problems: Problems) -> None:
    name = str(setting.options.get("optimizer") or "adamw")
    if setting.blocks is not None and setting.blocks.reads and name not in setting.blocks.reads:
        known = " or ".join(f"`{each}`" for each in setting.blocks.reads)
        problems.add(
            "PP101", f"how often `{name}` reads partial gradients of `{setting.blocks.name}` was not measured", help=f"give {known}"
        )
    if setting.optimizer.factored and setting.cut_axes and setting.states.cut in ("rows", "elements"):
        message = f"what `{name}` keeps of parts of a matrix under `{setting.states.name}` was not measured"
        problems.add("PP101", message, help="choose an optimizer that keeps numbers for each element, such as `adamw`")


def _check_passes(setting: Setting, problems: Problems) -> None:
    said, step = setting.options.get("no_sync"), setting.options.get("step")
    if said is not None and not setting.accumulates:
        help_ = f"leave `no_sync` out, or `{setting.strategy.name} * accumulate(4)`"
        problems.add("PP104", f"`{setting.strategy.name}` has one pass over the model in a step", help=help_)
    elif setting.accumulates and said is None and "no_sync" in setting.states.options:
        message = "gradients of several passes are reduced in each of them, or in the last alone: exact bytes need to know which"
        problems.add("PP203", message, help="`--option no_sync=true` for the last alone, `--option no_sync=false` for each")
    if setting.accumulates and step is not None and int(step) < 4:
        problems.add("PP104", "buckets of the first steps with several passes were not measured", help="leave `step` out")
