"""peft's `adapter_config.json`: adapters of low rank beside a model, and nothing of devices.

(peft==0.21.2:tuners/lora/config.py)
"""

from __future__ import annotations

import re

from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document
from placeproof.importers.imported import Imported
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.transformers.training import Arguments, adapted, finished

#: What names of models have whose weights lie in few bits.
_FEW_BITS = re.compile(r"(?<![a-z0-9])(bnb|gptq|awq|nf4|fp8|[48]-?bits?|int-?[48])(?![a-z0-9])", re.IGNORECASE)


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read the configuration of adapters. ``world``: no other number of devices than 1, as it says nothing of more."""
    run = Arguments(document, settings("peft"), problems, world=world)
    run.handed.add("max_grad_norm")  # what becomes of gradients the program says
    if world not in (None, 1):
        help = f"ask about the strategy over them, as `fsdp({world}) * lora(rank={run.get('r')})`"
        problems.add("PP505", "`adapter_config.json` says adapters, and nothing of how devices train them", help=help)
    if "peft_type" not in run.found:
        place = document.place(next(iter(document.data), ""))
        problems.add("PP504", "no `peft_type` is said, and peft asks for one", place=place, help='`"peft_type": "LORA"`')
    step = Imported(system="peft", source=document.source, expression="", readings=())
    few_bits = _FEW_BITS.search(str(run.get("base_model_name_or_path") or "")) is not None
    said = document.data.get("target_modules")
    is_lora = str(run.get("peft_type")).upper() == "LORA"
    names_nothing = isinstance(said, list) and set(map(str, said)) <= {"all-linear"}
    imported = adapted(run, step, "peft_type", "r", "target_modules")
    facts = {"few_bits": few_bits, "names_nothing": names_nothing, "one_text": isinstance(said, str), "is_lora": is_lora}
    return finished(run, imported, meaning("peft"), **facts)
