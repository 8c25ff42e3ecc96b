"""Exact bytes of whole systems: buckets of DeepSpeed and buffers of Megatron-core, against what each rule of theirs is for.

All amounts are read off the step programs that the systems run, and their own rules of how much goes into one call, for given shapes of
tensors. Parameters take 4 bytes, unless something else is said.
"""

from math import ceil, prod

from placeproof.cost.exact.megatron import decoder
from placeproof.theory import Proved, byte, exact, holds, maximum, theorem

from .device_bytes import DECODER, ODD, STREAM, listed, off, tensors

DEEPSPEED, MEGATRON = "deepspeed-0.19", "megatron-core"
SIZES = [prod(shape) for unit in ODD for shape in unit]
#: In the order in which gradients become ready: the last tensor of the root is used last.
READY = [SIZES[1], *SIZES[:1:-1], SIZES[0]]
WHOLE, PARTS = sum(SIZES), 4
#: Elements of the flat tensor of all parameters, a multiple of two for each device.
FLAT = ceil(WHOLE / (2 * PARTS)) * 2 * PARTS


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def deepspeed_keeps_a_master_copy_in_parts():
    """DeepSpeed keeps whole parameters at stages 0 to 2, and two numbers of AdamW and a master copy in single precision, of all parameters
    in stage 0 if these are narrower, of an n-th from stage 1 on: of one flat tensor, filled up to a multiple of two elements a device, or,
    at stage 3, of each tensor, filled up by itself.

    The optimizer counts 4 bytes for each tensor that it sees: one at stages 1 to 3. Tensors of at most so many elements stay whole at
    stage 3, beside their parts.
    """
    each = sum(ceil(size / PARTS) for size in SIZES)
    pairs = []
    for stage, part, seen in ((0, WHOLE, tensors(*ODD)), (1, FLAT // PARTS, 1), (2, FLAT // PARTS, 1), (3, each, 1)):
        subject = f"{('ddp', 'zero1', 'zero2', 'zero3')[stage]}({PARTS})"
        for dtype, width in (("float32", 4), ("bfloat16", 2)):
            limits = {"stage3_param_persistence_threshold": 28} if stage == 3 else {}
            adam = exact(subject, ODD, profile=DEEPSPEED, dtype=dtype, **limits)
            sgd = exact(subject, ODD, profile=DEEPSPEED, dtype=dtype, optimizer="sgd", **limits)
            kept = WHOLE if stage < 3 else each + sum(size for size in SIZES if size <= 28)
            copies = 1 if stage or width == 2 else 0
            pairs += [(adam.memory("parameters"), width * kept), (sgd.memory("optimizer"), 4 * copies * part)]
            pairs += [(adam.memory("optimizer"), 4 * (copies + 2) * part + 4 * seen)]
    return off(pairs) == 0


deepspeed_keeps_a_master_copy_in_parts.control(
    "none of parameters in single precision",
    lambda: exact("zero1(4)", ODD, profile=DEEPSPEED, optimizer="sgd").memory("optimizer") == 0,
    refuted_at={},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def deepspeed_gathers_and_says_whether_numbers_are_finite():
    """After the update, stages 1 and 2 gather all parameters in one call, filled up; the norm of all gradients is 4 bytes, at stage 3 8,
    and in half precision a byte more says whether one overflowed. Stage 0 needs the norm in single precision alone."""
    goals = []
    for subject, single, half in (("ddp", [4], []), ("zero1", [4], [1, 4]), ("zero2", [4], [1, 4]), ("zero3", [8], [8])):
        for dtype, width, flags in (("float32", 4, single), ("bfloat16", 2, half)):
            one = exact(f"{subject}({PARTS})", ODD, profile=DEEPSPEED, dtype=dtype)
            goals += listed(one, "all_reduce", flags, phase="update")
            if subject in ("zero1", "zero2"):
                goals += listed(one, "all_gather", [width * FLAT])
    return holds(goals)


deepspeed_gathers_and_says_whether_numbers_are_finite.control(
    "parameters alone", lambda: exact("zero1(4)", ODD, profile=DEEPSPEED).about("all_gather") == 4 * WHOLE * byte, refuted_at={}
)


def filled(sizes, limit):
    """Elements of buckets, each as full as it can be without passing a limit; what is larger is alone."""
    full = []
    for size in sizes:
        if not full or full[-1] + size > limit:
            full.append(0)
        full[-1] += size
    return full


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def deepspeed_fills_buckets_up_to_their_size():
    """Without reduce_scatter, DeepSpeed all-reduces gradients in buckets, each sent before it would pass its size: at stage 2 as gradients
    become ready, at stage 1 in the order of registration unless it overlaps them with backward. Stage 3 reduce-scatters them so,
    each filled up by itself."""
    goals = []
    for limit in (30, 60, 10**6):
        for subject, options, order in (
            ("zero1", {}, SIZES), ("zero1", {"overlap_comm": True}, READY), ("zero2", {}, READY), ("zero1", {"overlap_comm": False}, SIZES),
        ):  # fmt: skip
            asked = {"reduce_bucket_size": limit, "reduce_scatter": False, **options}
            one = exact(f"{subject}({PARTS})", ODD, profile=DEEPSPEED, **asked)
            goals += listed(one, "all_reduce", [4 * size for size in filled(order, limit)], phase="backward")
        one, left, full = exact(f"zero3({PARTS})", ODD, profile=DEEPSPEED, reduce_bucket_size=limit), list(READY), []
        for bucket in filled(READY, limit):
            own = []
            while sum(own) < bucket:
                own.append(left.pop(0))
            full.append(4 * sum(ceil(size / PARTS) * PARTS for size in own))
        goals += listed(one, "reduce_scatter", full, phase="backward")
    return holds(goals)


deepspeed_fills_buckets_up_to_their_size.control(
    "stage 1 as gradients become ready, too",
    lambda: (
        exact("zero1(4)", ODD, profile=DEEPSPEED, reduce_bucket_size=30, reduce_scatter=False).sizes("all_reduce", phase="backward")[0]
        == exact("zero2(4)", ODD, profile=DEEPSPEED, reduce_bucket_size=30, reduce_scatter=False).sizes("all_reduce", phase="backward")[0]
    ),
    refuted_at={},
)


def owned(start, size, part):
    """How many elements of a tensor that begins there each device has, where each has a part of that many, one after the other."""
    ends = [(owner, min(start + size, (owner + 1) * part) - max(start, owner * part)) for owner in range(PARTS)]
    return [(owner, number) for owner, number in ends if number > 0]


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def deepspeed_reduces_each_part_to_its_owner():
    """Of buckets that hold what they should, DeepSpeed reduces to each device what lies in its part of all parameters, one part after the
    other: together every gradient once. What it all-reduces instead is the bucket at once, or a tensor that is larger than a bucket in
    pieces, each closed as soon as it is larger."""
    goals = []
    for stage, order in ((1, SIZES), (2, READY)):
        asked = {"profile": DEEPSPEED, "reduce_bucket_size": WHOLE}
        one = exact(f"zero{stage}({PARTS})", ODD, implementations=[f"stage{stage}_owners"], **asked)
        starts = [sum(SIZES[:order_at]) for order_at in (range(7) if stage == 1 else (1, 6, 5, 4, 3, 2, 0))]
        pieces = [piece for start, size in zip(starts, order, strict=True) for piece in owned(start, size, FLAT // PARTS)]
        each = [4 * sum(size for owner, size in pieces if owner == own) for own in dict.fromkeys(owner for owner, _ in pieces)]
        goals += listed(one, "reduce", each, phase="backward")
        small = exact(f"zero{stage}({PARTS})", ODD, implementations=[f"stage{stage}_owners"], profile=DEEPSPEED, reduce_bucket_size=20)
        goals += [small.about("reduce") == 4 * WHOLE * byte]
        pieced = exact(f"zero{stage}({PARTS})", ODD, profile=DEEPSPEED, reduce_bucket_size=20)
        goals += [pieced.about("all_reduce", phase="backward") == 4 * WHOLE * byte]
        goals += [maximum(*pieced.sizes("all_reduce", phase="backward")) <= 4 * (20 + FLAT // PARTS) * byte]
    largest = exact(f"zero1({PARTS})", [[(100,)]], profile=DEEPSPEED, reduce_bucket_size=30)
    return holds(goals, *listed(largest, "all_reduce", [4 * 52, 4 * 48], phase="backward"))


deepspeed_reduces_each_part_to_its_owner.control(
    "each gradient to one device",
    lambda: exact("zero1(4)", ODD, profile=DEEPSPEED, implementations=["stage1_owners"]).calls("reduce") == tensors(*ODD),
    refuted_at={},
)


def cut(unit):
    """Bytes of a unit whose tensors are each filled up to equal parts."""
    return 4 * sum(ceil(prod(shape) / PARTS) * PARTS for shape in unit)


@theorem(expect=Proved(), cite=("rajbhandari2020zero", "rajbhandari2021infinity"))
def deepspeed_gathers_again_what_it_drops():
    """Stage 3 gathers what each module holds before forward and before backward uses it, each tensor filled up by itself: all of it twice,
    if nothing is kept. What is used again before so many other elements stays, with a limit as large as the model all of it. Tensors of at
    most a threshold are gathered once each, after the update. What is gathered ahead changes calls, and no more is gathered for it.
    """
    root, first, last = map(cut, ODD)
    drops = {"stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 0, "stage3_max_reuse_distance": 0}

    def run(**options):
        return exact(f"zero3({PARTS})", ODD, profile=DEEPSPEED, **{**drops, **options})

    small = [size for size in SIZES if size <= 7]
    whole = run(stage3_param_persistence_threshold=7)
    ahead, near = run(stage3_prefetch_bucket_size=40), run(stage3_max_reuse_distance=60)
    few = run(stage3_prefetch_bucket_size=1000, stage3_max_live_parameters=0)
    goals = listed(run(), "all_gather", [root, first, last], phase="forward")
    goals += listed(run(), "all_gather", [root, last, first], phase="backward")
    goals += listed(run(stage3_max_reuse_distance=10**6), "all_gather", [root, first, last])
    goals += listed(whole, "all_gather", [4 * ceil(size / PARTS) * PARTS for size in small], phase="update")
    goals += [whole.about("all_gather") == 2 * (root + first + last) * byte - 4 * sum(ceil(s / 4) * 4 for s in small) * byte]
    goals += [ahead.about("all_gather", phase="forward") == (root + first + last) * byte, ahead.calls("all_gather", phase="forward") == 4]
    goals += listed(near, "all_gather", [first], phase="backward")
    return holds(goals, *listed(few, "all_gather", [root, first, last], phase="forward"))


deepspeed_gathers_again_what_it_drops.control(
    "by default", lambda: exact("zero3(4)", ODD, profile=DEEPSPEED).about("all_gather", phase="backward") > 0, refuted_at={}
)

# Megatron-core.


FUSED = decoder(**DECODER)
#: Elements of its tensors in the reverse of the order of use; those of one layer twice.
LAYER = [24 * 16, 48 * 16, 16, 16 * 16, 32 * 16, 16]
BUFFER = [40 * 16, 16, *LAYER, *LAYER, 40 * 16]


def closed(sizes, limit):
    """Elements of buckets that end once they have their limit."""
    full = []
    for size in sizes:
        if not full or full[-1] >= limit:
            full.append(0)
        full[-1] += size
    return full


def aligned(sizes, limit, even=1):
    """Elements of buckets in one buffer: tensors begin at multiples of 64, a bucket ends once it has its limit, at a multiple of 128."""
    ends, begin, at = [], 0, 0
    for number, size in enumerate(sizes, 1):
        at = ceil(at / 64) * 64 + size
        if at - begin >= limit or number == len(sizes):
            at = ceil(at / (128 * even)) * 128 * even
            ends.append(at - begin)
            begin = at
    return ends


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "narayanan2021megatron"))
def megatron_reduces_buffers():
    """Megatron-core reduces gradients in one buffer, in the reverse of the order of use: all at once after backward, or in buckets that end
    once they have a size. With the distributed optimizer tensors begin at multiples of 64 elements and buckets end at multiples of 128, and
    for bus bandwidth of 65,536, and parameters are gathered bucket by bucket.

    Gradients are as wide as they are reduced, parameters as they are kept.
    """
    goals, large = [], 10**9
    for subject, op, buffers in (
        ("ddp(2)", "all_reduce", closed),
        ("zero1(2)", "reduce_scatter", aligned),
    ):
        for limit, options in (
            (large, {}),
            (500, {"overlap_grad_reduce": True, "bucket_size": 500}),
            (large, {"overlap_grad_reduce": True}),
        ):
            full = buffers(BUFFER, limit)
            for dtype, kept, wide in (("float32", 4, 4), ("bfloat16", 2, 4), ("bfloat16", 2, 2)):
                one = exact(subject, FUSED, profile=MEGATRON, dtype=dtype, grad_reduce_in_fp32=wide > kept, **options)
                phase = "backward" if options else "update"
                goals += listed(one, op, [wide * size for size in full], phase=phase)
                goals += listed(one, "all_gather", [kept * size for size in full] if op == "reduce_scatter" else [], phase="update")
                goals += [one.memory("gradients") == wide * sum(full) * byte, one.memory("parameters") == kept * sum(BUFFER) * byte]
    bus = exact("zero1(2)", FUSED, profile=MEGATRON, overlap_grad_reduce=True, bucket_size=500, pad_buckets_for_high_nccl_busbw=True)
    return holds(goals, *listed(bus, "reduce_scatter", [4 * size for size in aligned(BUFFER, 500, even=512)]))


megatron_reduces_buffers.control(
    "without room between tensors",
    lambda: exact("zero1(2)", FUSED, profile=MEGATRON).memory("gradients") == exact("ddp(2)", FUSED, profile=MEGATRON).memory("gradients"),
    refuted_at={},
)


@theorem(expect=Proved(), cite="narayanan2021megatron")
def megatron_buckets_have_forty_million_elements():
    """Without a size, buckets end once they have forty million elements, or a million for each device where that is more."""
    table = [[(1000, 1000)], *([(9000, 1000)] for _ in range(12))]
    used = [9_000_000] * 12
    goals = []
    for devices, limit in ((2, 40_000_000), (64, 64_000_000)):
        one = exact(f"ddp({devices})", table, profile=MEGATRON, overlap_grad_reduce=True)
        goals += listed(one, "all_reduce", [4 * size for size in closed([1_000_000, *used], limit)], phase="backward")
    return holds(goals)


megatron_buckets_have_forty_million_elements.control(
    "whatever the devices",
    lambda: (
        exact("ddp(64)", [[(1000, 1000)], *([(9000, 1000)] for _ in range(12))], profile=MEGATRON, overlap_grad_reduce=True).calls()
        == exact("ddp(2)", [[(1000, 1000)], *([(9000, 1000)] for _ in range(12))], profile=MEGATRON, overlap_grad_reduce=True).calls()
    ),
    refuted_at={},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "korthikanti2022activations"))
def megatron_gathers_again_what_it_does_not_keep():
    """Megatron's split blocks all-reduce the stream twice a layer in each pass, as those of the ideal do. With the stream split by tokens
    they gather it for forward and twice in backward: again for the gradients of weights. The gradients of norms are summed in one call.

    Buffers hold a device's part of the matrices; together with the distributed optimizer as well.
    """
    each, vocab, goals = 2 * DECODER["layers"] + 1, 4 * DECODER["batch"] * DECODER["tokens"] * DECODER["vocab"], []
    local = [40 * 16 // 2, 16, *[size if size == 16 else size // 2 for size in LAYER] * 2, 40 * 16 // 2]
    one = exact("zero1(2) * tp(2)", FUSED, profile=MEGATRON)
    goals += listed(one, "all_reduce", [STREAM] * each, over="tp", phase="forward") + listed(one, "all_gather", [vocab], over="tp")
    goals += listed(one, "all_reduce", [STREAM] * each, over="tp", phase="backward")
    goals += listed(one, "reduce_scatter", [4 * size for size in aligned(local, 10**9)], over="dp")
    split = exact("ddp(2) * tp(2) * sp", FUSED, profile=MEGATRON, dtype="bfloat16", grad_reduce_in_fp32=True)
    for phase, times in (("forward", [STREAM // 2] * each + [vocab // 2]), ("backward", [STREAM // 2] * 2 * each)):
        goals += listed(split, "all_gather", times, over="tp", phase=phase)
        goals += listed(split, "reduce_scatter", [STREAM // 2] * each, over="tp", phase=phase)
    goals += listed(split, "all_reduce", [4 * each * DECODER["hidden"]], over="tp")
    return holds(goals, split.memory("parameters") == 2 * sum(local) * byte, split.memory("gradients") == 4 * sum(local) * byte)


megatron_gathers_again_what_it_does_not_keep.control(
    "in the ideal, too",
    lambda: (
        exact("ddp(2) * tp(2) * sp", DECODER).calls("all_gather", over="tp")
        == exact("ddp(2) * tp(2) * sp", FUSED, profile=MEGATRON).calls("all_gather", over="tp")
    ),
    refuted_at={},
)


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def differences_of_systems_add_up():
    """What a system makes otherwise than the ideal is what its bytes and the ideal's differ by: of parameters and optimizer state, or of
    gradients, and of every kind of call."""
    goals = []
    for subject, sizes, profile, options in (
        ("zero1(4)", ODD, DEEPSPEED, {"reduce_bucket_size": 30}),
        ("zero3(4)", ODD, DEEPSPEED, {}),
        ("zero1(2) * tp(2) * sp", FUSED, MEGATRON, {}),
    ):
        ideal, one = exact(subject, sizes), exact(subject, sizes, profile=profile, **options)
        states = ("parameters", "optimizer") if profile == DEEPSPEED else ("parameters", "gradients")
        goals += [ideal.memory(state) + one.changed(state) == one.memory(state) for state in states]
        kinds = ("all_reduce", "reduce_scatter", "all_gather")
        goals += [ideal.about(kind) + one.changed(kind) == one.about(kind) for kind in kinds]
    return holds(goals)


differences_of_systems_add_up.control(
    "there are none",
    lambda: exact("zero1(4)", ODD, profile=DEEPSPEED).memory("optimizer") == exact("zero1(4)", ODD).memory("optimizer"),
    refuted_at={},
)
