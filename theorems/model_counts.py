"""What models have: parameters of families in closed form, and of presets as they are published.

Counts are those of the weights in the headers of a model's blocks, with sizes of their dimensions.
"""

from fractions import Fraction

from placeproof.theory import Positive, Proved, Real, counted, holds, theorem

#: Presets of GPT: layers, hidden size and heads as their sources print them, and billions of parameters with how exact these are.
GPT = {
    "gpt3-125m": (12, 768, 12, "0.125", "0.0005"),
    "gpt3-350m": (24, 1024, 16, "0.356", "0.0005"),
    "gpt3-760m": (24, 1536, 16, "0.760", "0.0005"),
    "gpt3-1.3b": (24, 2048, 16, "1.32", "0.005"),
    "gpt3-2.7b": (32, 2560, 32, "2.65", "0.005"),
    "gpt3-6.7b": (32, 4096, 32, "6.66", "0.005"),
    "gpt3-13b": (40, 5120, 40, "12.85", "0.005"),
    "gpt3-175b": (96, 12288, 96, "174.60", "0.005"),
    "narayanan-1.7b": (24, 2304, 24, "1.7", "0.05"),
    "narayanan-7.5b": (36, 4096, 32, "7.5", "0.05"),
    "narayanan-39.1b": (48, 8192, 64, "39.1", "0.05"),
    "narayanan-145.6b": (80, 12288, 96, "145.6", "0.05"),
    "narayanan-529.6b": (105, 20480, 128, "529.6", "0.05"),
    "korthikanti-22b": (48, 6144, 64, "22", "0.5"),
    "korthikanti-175b": (96, 12288, 96, "175", "0.5"),
    "korthikanti-530b": (105, 20480, 128, "530", "0.5"),
    "korthikanti-1t": (128, 25600, 160, "1008", "0.5"),
    "mt-nlg-530b": (105, 20480, 128, "530", "0.5"),
}
#: Parameters of others, as their authors' own files add them up, and sizes that no weight has.
OTHERS = {
    "llama3-8b": (8_030_261_248, {"s": 8192, "a": 32, "a_kv": 8, "V": 128256}),
    "llama3-70b": (70_553_706_496, {"s": 8192, "a": 64, "a_kv": 8, "V": 128256}),
    "llama3-405b": (405_853_388_800, {"s": 8192, "a": 128, "a_kv": 8, "V": 128256}),
    "mixtral-8x7b": (46_702_792_704, {"s": 32768, "a": 32, "a_kv": 8, "k": 2, "E": 8}),
    "deepseek-v3": (671_026_419_200, {"s": 4096, "k": 8, "E": 256, "L": 61, "L_dense": 3}),
    "bloom-176b": (176_247_271_424, {"s": 2048, "a": 112, "V": 250880, "L": 70}),
}


@theorem(expect=Proved(), cite=("narayanan2021megatron", "touvron2023llama", "jiang2024mixtral", "scao2022bloom", "deepseek2024technical"))
def families_have_the_parameters_of_their_shapes(
    L: Real, L_dense: Real, h: Real, a: Positive, a_kv: Real, f: Real, V: Real, n_pos: Real, E: Real, f_e: Real, f_s: Real,
    r_q: Real, r_kv: Real, d_nope: Real, d_rope: Real, d_v: Real,
):  # fmt: skip
    """Parameters by family. GPT: 12 h^2 + 13 h a layer, tables of tokens and positions, and a last norm: equation 2 of the first source has
    this but for the last norm. BLOOM has no table of positions and a norm behind its embedding. Llama has two matrices of h^2 a layer, two
    for its key-value heads, three of its feed-forward block, and two tables. Mixtral has E such blocks and a router.

    DeepSeek-V3 has latent queries, keys and values, of which a part is rotated, three matrices in each dense layer, and elsewhere those of
    its experts, of shared ones, and a router.
    """
    attention = 2 * h**2 + 2 * h**2 * a_kv / a
    latent = h * r_q + r_q * a * (d_nope + d_rope) + h * (r_kv + d_rope) + r_kv * a * (d_nope + d_v) + a * d_v * h + r_q + r_kv
    sparse = 3 * h * (E * f_e + f_s) + E * h
    return holds(
        counted("gpt", n_pos=n_pos).parameters() == 12 * L * h**2 + 13 * L * h + V * h + n_pos * h + 2 * h,
        counted("bloom").parameters() == 12 * L * h**2 + 13 * L * h + V * h + 2 * h + 2 * h,
        counted("llama", a_kv=a_kv, f=f).parameters() == 2 * V * h + L * (attention + 3 * h * f + 2 * h) + h,
        counted("mixtral", a_kv=a_kv).parameters() == 2 * V * h + L * (attention + E * 3 * h * f_e + E * h + 2 * h) + h,
        counted("deepseek_v3").parameters() == 2 * V * h + h + L * (latent + 2 * h) + L_dense * 3 * h * f + (L - L_dense) * sparse,
    )


families_have_the_parameters_of_their_shapes.control(
    "12 h^2 a layer of any family",
    lambda L, h, V: counted("llama").parameters() == 12 * L * h**2 + 2 * L * h + 2 * V * h + h,
    refuted_at={"L": 1, "h": 1, "V": 1},
)


@theorem(expect=Proved(), cite=("brown2020language", "narayanan2021megatron", "korthikanti2022activations", "smith2022megatron"))
def presets_of_gpt_are_as_printed():
    """Presets of GPT have the layers, the hidden size and the heads that their sources print, 2048 tokens, 50,257 or 51,200 in the
    vocabulary, and as many parameters as these print, as far as they are rounded. Of table D.1 of the first source."""
    goals = []
    for name, (layers, hidden, heads, printed, exact) in GPT.items():
        model, billions = counted(name), Fraction(printed)
        goals += [model.size("L") == layers, model.size("h") == hidden, model.size("a") == heads, model.size("s") == 2048]
        goals += [model.size("V") == (50257 if name.startswith("gpt3") else 51200), model.size("n_pos") == 2048]
        goals += [(model.parameters() / 10**9 - billions) ** 2 <= Fraction(exact) ** 2]
    return holds(goals)


presets_of_gpt_are_as_printed.control(
    "350 million", lambda: (counted("gpt3-350m").parameters() - 350 * 10**6) ** 2 <= (500 * 1000) ** 2, refuted_at={}
)


@theorem(expect=Proved(), cite=("grattafiori2024llama", "jiang2024mixtral", "deepseek2024technical", "scao2022bloom"))
def presets_have_the_parameters_of_published_weights():
    """Llama 3, Mixtral, DeepSeek-V3 and BLOOM have to the last element the parameters of the weights that are published; those of
    DeepSeek-V3 include the buffers of its routers, and not what predicts further tokens."""
    goals = []
    for name, (parameters, sizes) in OTHERS.items():
        model = counted(name)
        goals += [model.parameters() + model.buffers == parameters, *(model.size(symbol) == n for symbol, n in sizes.items())]
    return holds(goals)


presets_have_the_parameters_of_published_weights.control(
    "without buffers", lambda: counted("deepseek-v3").parameters() == 671_026_419_200, refuted_at={}
)


@theorem(expect=Proved(), cite=("press2017tied", "jiang2024mixtral", "deepseek2024technical", "fedus2022switch"))
def a_token_meets_a_row_of_a_table_and_the_experts_it_chooses(
    L: Real, L_dense: Real, h: Real, V: Real, s: Real, E: Real, k: Real, f_e: Real
):
    """Of all parameters a token meets all but the other rows of tables that are looked up in, and all experts but those that it chooses. A
    table that is the head's matrix, too, is met whole, and is counted once."""
    gpt, untied, tied = counted("gpt"), counted("gpt", tied="no"), counted("llama", tied="yes")
    mixtral, deepseek = counted("mixtral"), counted("deepseek_v3")
    return holds(
        [gpt.parameters() - gpt.active == (s - 1) * h, untied.parameters() - untied.active == (s - 1) * h + (V - 1) * h],
        [untied.parameters() - gpt.parameters() == V * h, counted("llama").parameters() - tied.parameters() == V * h],
        [tied.parameters() == tied.active, counted("llama").parameters() - counted("llama").active == (V - 1) * h],
        mixtral.parameters() - mixtral.active == (V - 1) * h + L * 3 * h * f_e * (E - k),
        deepseek.parameters() - deepseek.active == (V - 1) * h + (L - L_dense) * 3 * h * f_e * (E - k),
        deepseek.buffers == (L - L_dense) * E,
    )


a_token_meets_a_row_of_a_table_and_the_experts_it_chooses.control(
    "all but what it chooses, of routers too",
    lambda L, h, V, E, k, f_e: counted("mixtral").parameters() - counted("mixtral").active == (V - 1) * h + L * h * (3 * f_e + 1) * (E - k),
    refuted_at={"L": 1, "h": 1, "V": 1, "E": 2, "k": 1, "f_e": 1, "s": 1, "L_dense": 0},
)


@theorem(expect=Proved(), cite=("brown2020language", "jiang2024mixtral"))
def groups_of_parameters_add_up(
    L: Real,
    h: Real,
    V: Real,
    s: Real,
    E: Real,
    f_e: Real,
    r_q: Real,
    r_kv: Real,
    L_dense: Real,
    f: Real,
    f_s: Real,
    a: Real,
    d_nope: Real,
    d_rope: Real,
    d_v: Real,
):
    """Every parameter is in one group: gains and biases along the hidden size or a latent one are norms, tables are embeddings, and experts
    and routers are groups of their own."""
    goals = []
    for family in ("gpt", "bloom", "llama", "mixtral", "deepseek_v3"):
        model = counted(family)
        goals += [sum(model.parameters(group) for group in ("matrix", "norm", "embedding", "expert", "router")) == model.parameters()]
    norms = {"gpt": 6 * L * h + 2 * h, "bloom": 6 * L * h + 4 * h, "llama": 2 * L * h + h, "deepseek_v3": L * (2 * h + r_q + r_kv) + h}
    goals += [counted(family).parameters("norm") == number for family, number in norms.items()]
    mixtral = counted("mixtral")
    goals += [mixtral.parameters("expert") == 3 * E * L * h * f_e, mixtral.parameters("router") == E * L * h]
    return holds(goals, counted("gpt").parameters("embedding") == V * h + s * h, mixtral.parameters("embedding") == 2 * V * h)


groups_of_parameters_add_up.control(
    "a router is a matrix",
    lambda L, h: counted("mixtral").parameters("matrix") == L * (4 * h**2 + counted("mixtral").size("E") * h),
    refuted_at={"L": 1, "h": 1, "E": 1},
)
