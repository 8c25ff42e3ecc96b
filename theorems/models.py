"""Published models under a strategy: how many devices they need, and what their stages hold.

All quantities are derived from the programs of a model's blocks, its sizes put in. Model states are those of mixed precision with Adam: 2
bytes for a parameter, 2 for its gradient, 12 for its optimizer state. Activations are left out where only model states are said.
"""

from placeproof.theory import GB, Degree, Proved, Real, Refuted, derived, holds, theorem

MIXED = {"b_theta": 2, "b_g": 2, "b_omega": 12}


def states(strategy, model):
    """Bytes of model states on the device that has most."""
    return derived(strategy, model=model).memory("model_states").where(**MIXED)


@theorem(expect=Proved(), cite=("grattafiori2024llama", "rajbhandari2020zero"))
def llama3_8b_fits_into_80_gb_from_two_devices_on(N: Degree):
    """Sharded in full over two devices or more, the model states of Llama 3 8B take at most 80 GB on each."""
    return holds(states("zero3", "llama3-8b") <= 80 * GB, given=[N >= 2])


llama3_8b_fits_into_80_gb_from_two_devices_on.control("on one device", lambda: states("zero3", "llama3-8b") <= 80 * GB, refuted_at={"N": 1})


@theorem(
    expect=Refuted(witness={"N": 64}, because="parameters are whole on each device under stage 2: they alone take 141 GB"),
    cite=("grattafiori2024llama", "rajbhandari2020zero"),
)
def llama3_70b_fits_into_80_gb_under_stage_2(N: Degree):
    """From 64 devices on, ZeRO stage 2 holds the model states of Llama 3 70B in 80 GB."""
    return holds(states("zero2", "llama3-70b") <= 80 * GB, given=[N >= 64])


llama3_70b_fits_into_80_gb_under_stage_2.control(
    "stage 3 does, from 15 devices on", lambda N: holds(states("zero3", "llama3-70b") <= 80 * GB, given=[N >= 15]), proved=True
)


@theorem(expect=Proved(), cite=("grattafiori2024llama", "narayanan2021megatron"))
def stages_hold_a_model_once(b_theta: Real, b_omega: Real):
    """Eight pipeline stages hold each parameter of Llama 3 70B once, and its optimizer state once: together what one device would hold."""
    stages, whole = derived("pp(8)", model="llama3-70b"), derived("ddp", model="llama3-70b")
    keys = ("parameters", "optimizer")
    return [sum(stages.memory(key, stage=f"stage {i}") for i in range(8)) == whole.memory(key) for key in keys]


stages_hold_a_model_once.control(
    "each of them an eighth",
    lambda: 8 * derived("pp(8)", model="llama3-70b").memory("parameters") == derived("ddp", model="llama3-70b").memory("parameters"),
    refuted_at={"b_theta": 1},
)


@theorem(expect=Proved(), cite=("shoeybi2019megatron", "narayanan2021megatron"))
def gpt3_175b_needs_more_than_four_stages_of_8_devices(N_pp: Degree):
    """Its tensors split over 8 devices, its layers over at most four stages, GPT-3 175B leaves over 80 GB of model states on a device."""
    return holds(states("tp(8) * pp", "gpt3-175b") > 80 * GB, given=[N_pp <= 4])


gpt3_175b_needs_more_than_four_stages_of_8_devices.control(
    "or five", lambda N_pp: holds(states("tp(8) * pp", "gpt3-175b") > 80 * GB, given=[N_pp <= 5]), refuted_at={"N_pp": 5}
)
