"""Exact bytes of one device: how the ideal and PyTorch cut a model's tensors, and what each call is about.

All amounts are read off the step program that an implementation runs, for given shapes of tensors. Parameters take 4 bytes, and AdamW keeps
two numbers for each and a count of 4 bytes for each tensor that it sees, unless something else is said. Implementations are those of
PyTorch 2.13, unless it says the ideal.
"""

from itertools import accumulate
from math import ceil, prod

from placeproof.models import load
from placeproof.theory import Proved, Refuted, byte, derived, exact, holds, term, theorem

TORCH = "torch-2.13"
#: Shapes of the tensors of units, of the root's first: four devices divide every unit of the first, and none of the second.
EVEN = [[(8, 3), (8,)], [(4, 4), (4,), (3, 2, 8)], [(4,), (2, 6)]]
ODD = [[(5, 3), (7,)], [(7, 7), (7,), (3, 2, 5)], [(3,), (2, 9)]]
DECODER = {"layers": 2, "hidden": 16, "heads": 4, "kv_heads": 2, "ffn": 24, "vocab": 40, "batch": 2, "tokens": 8}
STATES = ("parameters", "gradients", "optimizer")


def elements(*units):
    """Elements of all tensors of units."""
    return sum(prod(shape) for unit in units for shape in unit)


def tensors(*units):
    """How many tensors units have."""
    return sum(map(len, units))


def off(pairs):
    """The sum of squared differences of amounts from numbers of bytes."""
    return sum(((amount - number * byte) ** 2 for amount, number in pairs), start=term(0))


def listed(one, kind, numbers, **where):
    """That the calls of a kind are about these bytes, call by call."""
    count = one.calls(kind, **where) == len(numbers)
    return [count, off(zip(one.sizes(kind, **where), numbers, strict=False)) == 0] if numbers else [count]


# Cutting states.


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def device_bytes_are_the_closed_forms_of_parts_that_divide():
    """Where devices divide every unit, a device of the ideal allocates and sends what the closed forms of the strategy say, for tensors of
    4-byte elements: but for the optimizer's count of 4 bytes for each tensor."""
    goals, sizes = [], {"P": elements(*EVEN), "N": 4, "b_theta": 4, "b_g": 4, "b_omega": 8, "N_rep": 2, "N_shard": 2}
    for name, axes in (("ddp", "4"), ("zero1", "4"), ("zero2", "4"), ("zero3", "4"), ("fsdp", "4"), ("hsdp", "rep=2, shard=2")):
        one, forms = exact(f"{name}({axes})", EVEN), derived(name)
        goals += [one.memory(state) == forms.memory(state).where(**sizes) for state in STATES[:2]]
        goals += [one.memory("optimizer") == forms.memory("optimizer").where(**sizes) + 4 * byte * tensors(*EVEN)]
        goals += [one.sent == forms.sent.where(**sizes)]
    return holds(goals)


device_bytes_are_the_closed_forms_of_parts_that_divide.control(
    "of parts that are rounded up",
    lambda: exact("fsdp(4)", ODD, profile=TORCH).memory("parameters") == derived("fsdp").memory("parameters").where(P=129, N=4, b_theta=4),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "zhao2023fsdp"))
def parts_of_all_devices_are_the_whole():
    """What devices hold of parameters, gradients and optimizer state in parts is together what one device would hold, however unequal the
    parts are: in single elements, by rows, as whole tensors. Every device counts the tensors that it sees."""
    goals, whole, count = [], 4 * byte * elements(*ODD), 4 * byte * tensors(*ODD)
    for subject, options in (("zero3(4)", {}), ("fsdp(5)", {"profile": TORCH}), ("hsdp(rep=2, shard=3)", {"profile": TORCH})):
        ranks = [exact(subject, ODD, rank=rank, **options) for rank in range({"z": 4, "f": 5, "h": 6}[subject[0]])]
        times = 2 if subject.startswith("hsdp") else 1
        goals += [sum(one.held(state) for one in ranks) == times * whole for state in STATES[:2]]
        goals += [sum(one.memory("optimizer") for one in ranks) == 2 * times * whole + len(ranks) * count]
    for devices in (2, 4):
        dealt = [exact(f"zero1({devices})", ODD, profile=TORCH, buffer="0", rank=rank) for rank in range(devices)]
        goals += [sum(one.memory("optimizer") for one in dealt) == 2 * whole + count]
    return holds(goals)


parts_of_all_devices_are_the_whole.control(
    "of what storages have room for",
    lambda: sum(exact("fsdp(4)", ODD, profile=TORCH, rank=r).memory("parameters") for r in range(4)) == 4 * byte * elements(*ODD),
    refuted_at={},
)


def rows(shape, parts, part):
    """Elements that one of some parts has of a tensor that is cut by its first dimension, each part as many rows as the first."""
    each = ceil(shape[0] / parts)
    return max(0, min(each, shape[0] - part * each)) * prod(shape[1:])


def filled(unit, parts):
    """Elements of a unit whose tensors are filled up to equal parts by rows."""
    return sum(ceil(shape[0] / parts) * parts * prod(shape[1:]) for shape in unit)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def fully_shard_cuts_rows():
    """Under fully_shard, device r of n allocates of each tensor one n-th of its rows, rounded up, and holds those from r times as many on
    that there are: the last devices have fewer, or none. The optimizer has what is held."""
    pairs, every = [], [shape for unit in ODD for shape in unit]
    for parts in (1, 2, 3, 5):
        for part in range(parts):
            one = exact(f"fsdp({parts})", ODD, profile=TORCH, rank=part)
            room, held = (4 * sum(rows(shape, parts, which) for shape in every) for which in (0, part))
            pairs += [pair for state in STATES[:2] for pair in ((one.memory(state), room), (one.held(state), held))]
            pairs += [(one.memory("optimizer"), 2 * held + 4 * len(every))]
    return off(pairs) == 0


fully_shard_cuts_rows.control(
    "an equal share of all elements", lambda: 5 * exact("fsdp(5)", ODD, profile=TORCH).held("parameters") == 4 * byte * 129, refuted_at={}
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def fully_shard_gathers_unit_by_unit():
    """fully_shard gathers each unit, filled up to equal parts, before forward uses it, and before backward does, in the reverse order: the
    root, which stays gathered by default, only once; nothing again if it is told so, and from fewer devices with sub-groups.

    Gradients are reduced unit by unit as backward leaves them, on a mesh of two axes then over replicas, one part of each.
    """
    root, first, last = sizes = [4 * filled(unit, 3) for unit in ODD]
    goals = []
    for subject, again, options in (
        ("fsdp(3)", [last, first], {}),
        ("fsdp(3)", [last, first, root], {"implementations": ["fsdp2_all"]}),
        ("fsdp(3, reshard_after_forward=false)", [], {}),
        ("fsdp(3, reshard_after_forward=3)", [last, first, root], {}),
        ("hsdp(rep=2, shard=3)", [last, first], {}),
        ("hsdp(rep=2, shard=3, reshard_after_forward=false)", [], {}),
    ):
        one, over = exact(subject, ODD, profile=TORCH, **options), "shard" if subject.startswith("hsdp") else "dp"
        goals += listed(one, "all_gather", sizes, over=over, phase="forward") + listed(
            one, "all_gather", again, over=over, phase="backward"
        )
        goals += listed(one, "reduce_scatter", [last, first, root], over=over, phase="backward")
        if over == "shard":
            goals += listed(one, "all_reduce", [root // 3, first // 3, last // 3], over="rep", phase="backward")
    parts = exact("fsdp(4, reshard_after_forward=2)", ODD, profile=TORCH)
    goals += listed(parts, "all_gather", [4 * filled(unit, 4) for unit in ODD[::-1]], over="dp_inner", phase="backward")
    return holds(goals)


fully_shard_gathers_unit_by_unit.control(
    "the root as well",
    lambda: exact("fsdp(3)", ODD, profile=TORCH).calls("all_gather", phase="backward") == len(ODD),
    refuted_at={},
)


@theorem(expect=Proved(), cite="zhao2023fsdp")
def fully_sharded_data_parallel_fills_up_flat_units():
    """FullyShardedDataParallel cuts each unit as one flat tensor, filled up by less than an element for each device, in which it also
    gathers and reduces; the optimizer sees one tensor for each unit.

    NO_SHARD all-reduces each unit, without filling it up.
    """
    flat = [ceil(elements(unit) / 4) * 16 for unit in ODD]
    one, grad_op = exact("fsdp(4)", ODD, profile=TORCH, implementations=["fsdp1"], rank=3), "fsdp(4, reshard_after_forward=false)"
    goals = [one.memory(state) == sum(flat) // 4 * byte for state in STATES[:2]]
    goals += [one.memory("optimizer") == (sum(flat) // 2 + 4 * len(ODD)) * byte]
    goals += listed(one, "all_gather", flat, phase="forward") + listed(one, "all_gather", flat[:0:-1], phase="backward")
    goals += listed(one, "reduce_scatter", [flat[2], flat[1], flat[0]])
    goals += listed(exact(grad_op, ODD, profile=TORCH, implementations=["fsdp1_grad_op"]), "all_gather", flat)
    copies = exact("ddp(4)", ODD, profile=TORCH, implementations=["fsdp1_no_shard"])
    return holds(goals, *listed(copies, "all_reduce", [4 * elements(unit) for unit in ODD]))


fully_sharded_data_parallel_fills_up_flat_units.control(
    "nothing is filled up",
    lambda: exact("fsdp(4)", ODD, profile=TORCH, implementations=["fsdp1"]).about("reduce_scatter") == 4 * byte * elements(*ODD),
    refuted_at={},
)


@theorem(expect=Proved(), cite="micikevicius2018mixed")
def types_decide_the_bytes_of_calls():
    """With mixed precision what is gathered is as wide as what is computed with, what is reduced as wide as it is reduced in, and what is
    held as wide as it was; types of 8, 4 and 2 bytes; SGD keeps nothing."""
    wide = exact("fsdp(4)", ODD, profile=TORCH)
    mixed = exact("fsdp(4)", ODD, profile=TORCH, param_dtype="bfloat16", reduce_dtype="float64")
    half = exact("fsdp(4)", ODD, profile=TORCH, dtype="float16", optimizer="sgd")
    computed = exact("fsdp(4)", ODD, profile=TORCH, dtype="float64", param_dtype="bfloat16")
    return holds(
        [2 * mixed.about("all_gather") == wide.about("all_gather"), mixed.about("reduce_scatter") == 2 * wide.about("reduce_scatter")],
        [mixed.memory(state) == wide.memory(state) for state in STATES],
        [2 * half.memory("gradients") == wide.memory("gradients"), half.memory("optimizer") == 0],
        [2 * half.about("reduce_scatter") == wide.about("reduce_scatter"), computed.memory("parameters") == 2 * wide.memory("parameters")],
        2 * computed.about("reduce_scatter") == wide.about("reduce_scatter"),
    )


types_decide_the_bytes_of_calls.control(
    "gradients are reduced as they are kept",
    lambda: (
        2 * exact("fsdp(4)", ODD, profile=TORCH, dtype="float64", param_dtype="bfloat16").about("reduce_scatter")
        == exact("fsdp(4)", ODD, profile=TORCH, dtype="float64").about("reduce_scatter")
    ),
    refuted_at={},
)

# DistributedDataParallel, and its optimizer in parts.


def buckets(sizes, first, rest):
    """Bytes of buckets that are closed as soon as they have a limit: of the first, and of every other."""
    full = []
    for size in sizes:
        if not full or full[-1] >= (rest if len(full) > 1 else first):
            full.append(0)
        full[-1] += size
    return full


@theorem(expect=Proved(), cite="li2020ddp")
def data_parallel_reduces_in_buckets():
    """DistributedDataParallel all-reduces gradients in buckets, each closed as soon as it has its limit: 1 MiB, then 25 MiB, or what is
    said; in the reverse of the order in which forward uses tensors, or in that of registration if unused ones are looked for. In the first
    step there is one bucket."""
    root, *units = ODD
    used = [4 * prod(shape) for shape in (*root[:-1], *(s for unit in units for s in unit), root[-1])]
    plain = [4 * prod(shape) for unit in ODD for shape in unit]
    cap, goals = 100, []
    for options, full in (
        ({}, buckets(used[::-1], cap, cap)),
        ({"find_unused": True}, [4 * len(used), *buckets(plain, cap, cap)]),
        ({"step": 1}, [sum(plain)]),
    ):
        one = exact("ddp(4)", ODD, profile=TORCH, buffer="0", bucket_cap_mb=cap / 2**20, **options)
        goals += [*listed(one, "all_reduce", full, phase="backward"), one.calls() == len(full)]
    large = [[(1024, 64)], *([(512, 1024)] for _ in range(15)), [(512, 1025)], [(512, 1024)]]
    sizes = [4 * prod(shape) for (shape,) in [*large[1:], large[0]]]
    return holds(goals, *listed(exact("ddp(2)", large, profile=TORCH, buffer="0"), "all_reduce", buckets(sizes[::-1], 2**20, 25 * 2**20)))


data_parallel_reduces_in_buckets.control(
    "one after the other tensor",
    lambda: exact("ddp(4)", ODD, profile=TORCH, buffer="0", bucket_cap_mb=100 / 2**20).calls("all_reduce") == tensors(*ODD),
    refuted_at={},
)


@theorem(expect=Proved(), cite="li2020ddp")
def data_parallel_sends_buffers_and_what_was_used():
    """Beside gradients, DistributedDataParallel broadcasts in each forward the buffers of each type together, all-reduces 4 bytes for each
    tensor if unused ones are looked for, and in its second step broadcasts 4 bytes for each tensor and for each bucket, and 4 more."""
    kinds = "float64:1,float32:1,bfloat16:1,float16:1,int64:1,int32:1,int16:1,int8:1,uint8:1,bool:1,dtype:2"
    buffers = exact("ddp(4)", ODD, profile=TORCH, buffer=kinds)
    tables = exact("ddp(4)", ODD, profile=TORCH, buffer="0", step=2, bucket_cap_mb=100 / 2**20)
    told = [4 * (tensors(*ODD) + 1), 4 * 4]
    return holds(listed(buffers, "broadcast", [8, 4 + 2 * 4, 2, 2, 8, 4, 2, 1, 1, 1], phase="forward"), listed(tables, "broadcast", told))


data_parallel_sends_buffers_and_what_was_used.control(
    "4 bytes for each parameter",
    lambda: exact("ddp(4)", ODD, profile=TORCH, buffer="0", find_unused=True).sizes("all_reduce")[0] == 4 * byte * elements(*ODD),
    refuted_at={},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def whole_tensors_are_dealt_to_who_has_least():
    """ZeroRedundancyOptimizer deals out whole tensors: no device has more than another one by more than its last tensor, so that optimizer
    state differs by no more than the largest. After the update each tensor is broadcast, or what each device has at once; of a device that
    has none 4 bytes."""
    ranks = [exact("zero1(3)", ODD, profile=TORCH, buffer="0", rank=rank).memory("optimizer") for rank in range(3)]
    one, few = (exact(f"zero1({n})", ODD, profile=TORCH, buffer="0", bucket_view=view) for n, view in ((3, False), (8, True)))
    sizes = [4 * prod(shape) for unit in ODD for shape in unit]
    largest = sorted(sizes)[::-1]  # 196, 120, 72, 60, 28, 28 and 12: to devices 0, 1, 2, 2, 1, 2 and 1
    dealt = [largest[0], largest[1] + largest[4] + largest[6], largest[2] + largest[3] + largest[5]]
    alone = [size for size in largest if size > 28] + [28, 28, 12, 4]
    goals = [rank == (2 * each + 4 * count) * byte for rank, each, count in zip(ranks, dealt, (1, 3, 3), strict=True)]
    goals += [one.about("broadcast") == sum(sizes) * byte, one.about("all_reduce") == sum(sizes) * byte]
    return holds(goals, *listed(one, "broadcast", sizes, phase="update"), *listed(few, "broadcast", alone, phase="update"))


whole_tensors_are_dealt_to_who_has_least.control(
    "in equal parts",
    lambda: exact("zero1(3)", ODD, profile=TORCH, buffer="0").memory("optimizer") == exact("zero1(3)", ODD).memory("optimizer"),
    refuted_at={},
)

# Pipelines: what stages hold, and what they hand on.

LAYERS = DECODER | {"layers": 7}
STREAM = 4 * DECODER["batch"] * DECODER["tokens"] * DECODER["hidden"]
#: A schedule on so many devices, how it is asked for, and how often a stage hands on to another device.
FLOWS = (
    ("pp(3, microbatches=4)", {}, 3, 2),
    ("pp(3, microbatches=4, schedule=gpipe)", {"implementations": ["gpipe"]}, 3, 2),
    ("pp(2, microbatches=4, schedule=interleaved, chunks=3)", {}, 2, 5),
    ("pp(2, microbatches=4, schedule=gpipe)", {"implementations": ["looped_bfs"]}, 2, 3),
    ("pp(2, microbatches=4)", {"implementations": ["zb1p"], "virtual": 3}, 2, 5),
    ("pp(3, microbatches=4, schedule=zb-v)", {}, 3, 4),
    ("pp(2, microbatches=4, schedule=dualpipe-v)", {}, 2, 2),
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron", "qi2024zerobubble"))
def devices_of_a_pipeline_receive_what_others_send():
    """All devices together receive in each pass what they send: the stream of each of m micro-batches from each stage to the next one, as
    often as these lie on two devices: p - 1 times, v p - 1 times for v stages on each device, and 2 p - 2 times where the second half of
    the stages runs back, because the turn needs no message. The first one hands nothing back. All hold the whole model, once."""
    goals = []
    for subject, options, devices, hops in FLOWS:
        ranks = [exact(subject, LAYERS, profile=TORCH, rank=rank, **options) for rank in range(devices)]
        for phase in ("forward", "backward"):
            sent, received = (sum(one.about(kind, phase=phase) for one in ranks) for kind in ("send", "recv"))
            goals += [sent == received, sent == 4 * hops * STREAM * byte]
        goals += [sum(one.memory("parameters") for one in ranks) == exact("ddp(2)", LAYERS).memory("parameters")]
        if hops == devices - 1:
            goals += [ranks[0].calls("send", phase="backward") == 0, ranks[-1].calls("send", phase="forward") == 0]
    return holds(goals)


devices_of_a_pipeline_receive_what_others_send.control(
    "each receives what it sends",
    lambda: (
        exact("pp(3, microbatches=4)", LAYERS, profile=TORCH).about("send", phase="forward")
        == exact("pp(3, microbatches=4)", LAYERS, profile=TORCH).about("recv", phase="forward")
    ),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("huang2019gpipe", "narayanan2021megatron"))
def stages_have_layers_and_ends_of_their_own():
    """Stage i of S has the layers from floor(i L / S) on, up to those of the next one; the first has the embedding, too, and the last the
    last norm and the head. Device d has the stages d, d + p, ..., or one from either end."""
    layer, table, norm = 4 * (2 * 16 + 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16), 4 * 40 * 16, 4 * 16
    pairs = []
    for subject, options, devices, hops in FLOWS:
        stages = devices * (1 if hops == devices - 1 else 2 if hops in (3, 2 * devices - 2) else 3)
        ends = list(accumulate((7 * (i + 1) // stages - 7 * i // stages for i in range(stages)), initial=0))
        held = [(ends[i + 1] - ends[i]) * layer + (table if i == 0 else 0) + (table + norm) * (i == stages - 1) for i in range(stages)]
        for rank in range(devices):
            folds = "-v" in subject
            own = (rank, stages - 1 - rank) if folds else range(rank, stages, devices)
            one = exact(subject, LAYERS, profile=TORCH, rank=rank, **options)
            pairs += [(one.memory("parameters"), sum(held[i] for i in own))]
    return off(pairs) == 0


stages_have_layers_and_ends_of_their_own.control(
    "as many layers each",
    lambda: (
        exact("pp(3, microbatches=4)", LAYERS, profile=TORCH, rank=1).memory("parameters") * 3
        == exact("ddp(2)", LAYERS).memory("parameters")
    ),
    refuted_at={},
)

# Tensor parallelism.


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def split_blocks_exchange_the_stream_twice_a_layer():
    """Blocks with split matrices all-reduce the stream once each in forward, and once each in backward: two each a layer, one of the
    embedding, one of the head; the logits are gathered. Without what joins linear layers that read the same, backward has five a layer.

    With the stream split by tokens, each becomes a reduce-scatter or an all-gather, and the gradients of norms are summed: AdamW reads
    partial sums three times, SGD once; where gradients are reduced over other axes anyway, once.
    """
    layers, vocab = DECODER["layers"], 4 * DECODER["batch"] * DECODER["tokens"] * DECODER["vocab"]
    each, norms, goals = 2 * layers + 1, 2 * layers + 1, []
    for name, again in (("tp_megatron", each), ("tp_naive", 5 * layers + 1)):
        one = exact("tp(2)", DECODER, profile=TORCH, implementations=[name])
        goals += listed(one, "all_reduce", [STREAM] * each, phase="forward") + listed(one, "all_reduce", [STREAM] * again, phase="backward")
        goals += listed(one, "all_gather", [vocab])
    for subject, optimizer, phase, times in (
        ("tp(2) * sp", "adamw", "update", 3), ("tp(2) * sp", "sgd", "update", 1), ("fsdp(2) * tp(2) * sp", "adamw", "backward", 1)
    ):  # fmt: skip
        one = exact(subject, DECODER, profile=TORCH, optimizer=optimizer)
        goals += listed(one, "reduce_scatter", [STREAM] * each, over="tp", phase="forward")
        goals += listed(one, "all_gather", [STREAM] * each + [vocab], over="tp", phase="forward")
        goals += listed(one, "all_gather", [STREAM] * each, over="tp", phase="backward")
        goals += listed(one, "all_reduce", [4 * DECODER["hidden"]] * norms * times, over="tp", phase=phase)
    return holds(goals)


split_blocks_exchange_the_stream_twice_a_layer.control(
    "whatever plan they have",
    lambda: exact("tp(2)", DECODER, profile=TORCH, implementations=["tp_naive"]).sent == exact("tp(2)", DECODER, profile=TORCH).sent,
    refuted_at={},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "zhao2023fsdp"))
def devices_split_matrices_and_copy_norms():
    """Of t devices each has a t-th of every matrix, and all of every norm; PyTorch keeps the gradient of an embedding that is split by its
    vocabulary whole, unless gradients are cut over other devices, too. Other axes cut what is left."""
    layers, hidden = DECODER["layers"], DECODER["hidden"]
    norms = (2 * layers + 1) * hidden
    matrices = layers * (2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16) + 2 * 40 * hidden
    pairs = []
    for subject, profile, parts in (
        ("tp(2)", "ideal", 1),
        ("tp(2) * sp", TORCH, 1),
        ("fsdp(2) * tp(2)", TORCH, 2),
        ("zero3(2) * tp(2)", "ideal", 2),
    ):
        one, count = exact(subject, DECODER, profile=profile), 9 * layers + 3
        kept = 40 * hidden // 2 if (profile, parts) == (TORCH, 1) else 0
        local = matrices // 2 + norms
        pairs += [(one.memory("parameters"), 4 * local // parts), (one.memory("gradients"), 4 * (local // parts + kept))]
        pairs += [(one.memory("optimizer"), 8 * local // parts + 4 * count)]
    return off(pairs) == 0


devices_split_matrices_and_copy_norms.control(
    "half of all parameters",
    lambda: 2 * exact("tp(2)", DECODER).memory("parameters") == exact("ddp(2)", DECODER).memory("parameters"),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("korthikanti2022activations", "grattafiori2024llama"))
def blocks_of_profiles_keep_what_the_model_keeps():
    """PyTorch keeps of a decoder what is derived of a Llama of its sizes, two numbers for each token and norm, and where matrices are split
    all logits; where the stream is split by tokens also what is gathered for each block, whole."""
    llama = load("llama").resized({"L": 2, "h": 16, "a": 4, "a_kv": 2, "f": 24, "V": 40, "s": 8})
    norms, tokens, vocab = 2 * 2 + 1, 16, 40
    goals = []
    for ours, theirs, more in (
        ("ddp(2)", "ddp", 2 * norms * tokens),
        ("tp(2)", "tp", 2 * norms * tokens + vocab * tokens / 2),
        ("tp(2) * sp", "tp * sp", norms * tokens + vocab * tokens / 2 + norms * tokens * 16 / 2),
    ):
        kept = derived(theirs, model=llama).memory("activations").where(b=2, b_a=4, N=2, N_tp=2)
        profiles = [{"profile": TORCH, "buffer": "0"} if ours == "ddp(2)" else {"profile": TORCH}, {}]
        goals += [exact(ours, DECODER, **options).memory("activations") == kept + 4 * int(more) * byte for options in profiles]
    return holds(goals)


blocks_of_profiles_keep_what_the_model_keeps.control(
    "half of it, on two devices",
    lambda: 2 * exact("tp(2)", DECODER).memory("activations") == exact("ddp(2)", DECODER).memory("activations"),
    refuted_at={},
)

# What is otherwise than in the ideal.


@theorem(expect=Proved(), cite=("li2020ddp", "zhao2023fsdp"))
def differences_add_up():
    """What each difference from the ideal is said to change adds up to what the implementation does more than the ideal: of every state,
    and of the bytes of every kind of call."""
    goals = []
    for subject, sizes, options in (
        ("ddp(4)", ODD, {"buffer": "float32:3", "find_unused": True}),
        ("zero1(8)", ODD, {"buffer": "0", "bucket_view": True}),
        ("fsdp(4)", ODD, {}),
        ("fsdp(4)", ODD, {"implementations": ["fsdp1"]}),
        ("tp(2)", DECODER, {"implementations": ["tp_naive"]}),
        ("fsdp(2) * tp(2) * sp", DECODER, {}),
    ):
        ideal, one = exact(subject, sizes), exact(subject, sizes, profile=TORCH, **options)
        goals += [ideal.memory(state) + one.changed(state) == one.memory(state) for state in STATES]
        kinds = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
        goals += [ideal.about(kind) + one.changed(kind) == one.about(kind) for kind in kinds]
    return holds(goals)


differences_add_up.control(
    "there are none",
    lambda: exact("fsdp(4)", ODD, profile=TORCH).about("all_gather") == exact("fsdp(4)", ODD).about("all_gather"),
    refuted_at={},
)


@theorem(
    expect=Refuted(because="fully_shard cuts a tensor of 5 rows into 2, 2, 1 and none, and the part of the largest is what counts"),
    cite="zhao2023fsdp",
)
def more_devices_take_less_room():
    """Under fully_shard, a device allocates less on four devices than on three, and less on five than on four."""
    room = [exact(f"fsdp({n})", [[(5, 3)]], profile=TORCH).memory("parameters") for n in (2, 3, 4, 5)]
    return holds(room[1] < room[0], room[2] < room[1], room[3] < room[2])


more_devices_take_less_room.control(
    "no more",
    lambda: [
        exact(f"fsdp({n + 1})", [[(5, 3)]], profile=TORCH).memory("parameters")
        <= exact(f"fsdp({n})", [[(5, 3)]], profile=TORCH).memory("parameters")
        for n in (2, 3, 4)
    ],
    proved=True,
)
