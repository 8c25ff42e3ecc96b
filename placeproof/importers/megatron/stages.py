"""How many layers each pipeline stage has, where Megatron-LM's arguments do not share them out evenly.

megatron/core/transformer/transformer_block.py, get_num_layers_to_build; pipeline_parallel_layer_layout.py, parse_str_to_list.
"""

from __future__ import annotations

import re

from placeproof.importers.fields import Reader

LAYOUT = "pipeline_model_parallel_layout"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
_STANDALONE = "standalone_embedding_stage"
#: What makes stages of different sizes.
UNEVEN = (LAYOUT, *_ENDS, *_COUNTED, _STANDALONE)
#: Letters of a layout, and what a list of it calls them.
_LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def uneven(reader: Reader, pp: int) -> tuple[int, ...] | None:
    """The layers of each stage of the model, in its order; of several runs on a device each is a stage. None where they are shared out
    evenly, or not known."""
    layers = reader.get("num_layers")
    if pp < 2 or layers is None or not any(reader.get(name) for name in UNEVEN) or reader.get(_STANDALONE):
        return None
    found = _of_layout(reader, pp, layers) if reader.get(LAYOUT) else _of_ends(reader, pp, layers)
    return found if found and min(found) >= 0 and sum(found) == layers else None


def runs_of_layout(reader: Reader, pp: int) -> int:
    """Runs of layers that a layout gives a device: 1 where there is none, or where it is none of so many devices."""
    return len(_letters(reader.get(LAYOUT))) // pp if reader.get(LAYOUT) else 1


def _of_layout(reader: Reader, pp: int, layers: int) -> tuple[int, ...]:
    """Those of a layout, stage by stage; none where it has layers that predict further tokens, which no formula counts."""
    stages = _letters(reader.get(LAYOUT))
    text = "".join(stages)
    known = set(text) <= {*_LETTERS.values()}
    wrong = (
        f"its parts are {', '.join(_LETTERS.values())}, between `|`" if not known
        else f"{len(stages)} stages are no multiple of {pp} devices" if len(stages) % pp
        else f"it has {text.count('t')} layers, and the model {layers}" if text.count("t") != layers
        else "it begins with the embedding, and ends with the loss" if (text[:1], text[-1:]) != ("E", "L")
        else ""
    )  # fmt: skip
    if wrong:
        reader.refuse(LAYOUT, f"this is no layout of these stages: {wrong}", f"for example `{_example(pp, layers)}`")
        return ()
    return () if "m" in text else tuple(stage.count("t") for stage in stages)


def _letters(layout: object) -> list[str]:
    """The stages of a layout, a letter for each part."""
    if not isinstance(layout, str):
        rows = layout if isinstance(layout, list) else []
        return ["".join(_LETTERS.get(str(part).strip().lower(), "?") for part in row) if isinstance(row, list) else "?" for row in rows]
    text = layout.replace(",", "")
    for repeated in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(repeated, lambda found: found[1] * min(int(found[2]), 10_000), text)
    return text.split("|")


def _example(pp: int, layers: int) -> str:
    """A layout that would do."""
    each, more = divmod(layers, pp)
    return "|".join(f"{'E' * (d == 0)}{'t' * (each + (d < more))}{'L' * (d == pp - 1)}" for d in range(pp))


def _of_ends(reader: Reader, pp: int, layers: int) -> tuple[int, ...]:
    """Those of stages at the ends that are said, or from which the embedding and the loss are taken."""
    ends = [reader.get(name) for name in _ENDS]
    counted = [bool(reader.get(name)) for name in _COUNTED]
    said = [n for n in ends if n is not None]
    rest, between = layers + sum(counted) - sum(said), pp - len(said)
    if (said and any(counted)) or (between and rest % between) or (not between and rest):
        return ()
    devices = [rest // between if between else 0] * pp
    devices[0] = devices[0] if ends[0] is None else ends[0]
    devices[-1] = devices[-1] if ends[1] is None else ends[1]
    runs = reader.get("num_virtual_stages_per_pipeline_rank") or 1
    if reader.get("num_layers_per_virtual_pipeline_stage") or any(n % runs for n in devices):
        return ()
    stages = [n // runs for _ in range(runs) for n in devices]
    stages[0] -= counted[0]
    stages[-1] -= counted[1]
    return tuple(stages)
