"""The systems whose configurations are read, and how a file is recognised."""

from __future__ import annotations

import importlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placeproof.core.diagnostics import InputError, Place, Problems, suggestion
from placeproof.core.files import REGISTRY, config_kind, is_file, read_text
from placeproof.importers.document import Document, as_arguments, is_script, read_document
from placeproof.importers.hydra import NAME
from placeproof.importers.imported import Imported

#: What a line of Python imports, or imports from.
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A framework, read by the ``read(document, world, problems) -> Imported`` of the module ``reader`` in its folder.

    ``kinds``: of files, that of a text without an ending first. ``marks``: keys that give it away; ``never``: keys that no file of it has.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    marks: tuple[str, ...]
    never: tuple[str, ...] = ()
    #: What files of Python import that are of it, and where its reader of them is.
    imports: tuple[str, ...] = ()
    registry: str = "registry"
    #: Folders of tables of settings beside its own.
    more: tuple[str, ...] = ()

    def recognises(self, kind: str, keys: Collection[str]) -> bool:
        """Whether a file of a kind with such keys is one of its own."""
        return kind in self.kinds and (not self.marks or not {*self.marks}.isdisjoint(keys)) and {*self.never}.isdisjoint(keys)


#: Arguments of transformers' Trainer that no other system has.
_TRAINER = ("per_device_train_batch_size", "per_gpu_train_batch_size", "output_dir", "num_train_epochs")

#: Arguments of LLaMA-Factory that no other system has.
_FACTORY = ("finetuning_type", "cutoff_len", "dataset_dir", "pref_loss", "dist_config")

#: Settings of axolotl that no other system has.
_AXOLOTL = ("base_model", "sequence_len")

#: Settings of MaxText that no other system has.
_MAXTEXT = ("base_config", "ici_fsdp_parallelism", "ici_tensor_parallelism", "ici_data_parallelism", "dcn_data_parallelism", "remat_policy")

SYSTEMS: dict[str, System] = {
    s.name: s
    for s in (
        System(
            name="deepspeed",
            title="DeepSpeed",
            kinds=("hjson",),
            marks=("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
            never=(*_TRAINER, *_FACTORY),
        ),
        System(name="megatron", title="Megatron-LM", kinds=("arguments",), marks=()),
        System(
            name="torchtitan",
            title="torchtitan",
            kinds=("toml", "registry"),
            marks=("parallelism", "training", "activation_checkpoint"),
            imports=("torchtitan",),
        ),
        System(
            name="nemo",
            title="Megatron-Bridge and NeMo 2",
            kinds=("registry",),
            marks=(),
            imports=("megatron.bridge", "nemo_run", "nemo.collections.llm"),
            registry="recipes",
        ),
        System(name="accelerate", title="Accelerate", kinds=("yaml",), marks=("distributed_type", "compute_environment")),
        System(
            name="transformers",
            title="transformers' Trainer",
            kinds=("yaml", "hjson"),
            marks=_TRAINER,
            never=(*_FACTORY, *_AXOLOTL),
            more=("transformers/programs",),
        ),
        System(name="axolotl", title="axolotl", kinds=("yaml",), marks=_AXOLOTL),
        System(name="automodel", title="NeMo Automodel", kinds=("yaml",), marks=("step_scheduler", "dist_env")),
        System(name="nemorl", title="NeMo RL", kinds=("yaml",), marks=("policy", "grpo")),
        System(name="verl", title="verl", kinds=("overrides", "yaml"), marks=("actor_rollout_ref",)),
        System(name="maxtext", title="MaxText", kinds=("overrides", "yaml"), marks=_MAXTEXT),
        System(name="peft", title="peft", kinds=("hjson",), marks=("peft_type",)),
        System(name="llamafactory", title="LLaMA-Factory", kinds=("yaml", "hjson"), marks=_FACTORY),
    )
}


#: The table in which YAML files of Megatron's own tests have its arguments.
_MEGATRON_TESTS = "MODEL_ARGS"
#: The key that gives away a model's configuration, as transformers writes it.
MODEL_TYPE = "model_type"


def recognised(text: str) -> bool:
    """Whether a command's argument names a configuration file that is no strategy file."""
    kind = config_kind(text)
    if kind is None or any(c in text for c in "*()"):
        return False
    if kind != "toml":
        return True
    if not is_file(text.strip()):  # a pipe can be read once
        return False
    try:
        body = read_text(text.strip(), code="PP501", help="give the path of a readable configuration")
    except InputError:
        return False
    tables = set(_toml_tables(body))
    if not tables and not any(line.strip() and not line.lstrip().startswith("#") for line in body.splitlines()):
        return True  # neither a configuration nor a strategy: that there is nothing in it is said where configurations are read
    return any(tables & set(s.marks) for s in SYSTEMS.values() if "toml" in s.kinds)


def _toml_tables(text: str) -> list[str]:
    """The outermost tables; those that are written as such where the text cannot be read, so that its reader says what is wrong."""
    import tomllib

    try:
        return list(tomllib.loads(text))
    except (ValueError, RecursionError):
        return re.findall(r"^[ \t]*\[[ \t]*(\w+)", text, re.MULTILINE)


def read_config(text: str, *, system: str | None = None, world: int | None = None, env: Sequence[str] = ()) -> Imported:
    """Read a configuration: the path of a file, or the text itself where the system is named (``--from megatron "..."``).

    ``world``: the number of devices, which most files leave to the launcher. ``env``: variables that a launch script gets from outside,
    ``NAME=VALUE``, and its arguments, ``1=VALUE``. Raises InputError with every problem of the file.
    """
    problems = Problems()
    if system is not None and system not in SYSTEMS:
        hint = suggestion(system, SYSTEMS) or "one of " + ", ".join(SYSTEMS)
        problems.add("PP501", f"configurations of `{system}` are not read", help=hint)
        problems.raise_if_any()
    body, source, kind = _text(text.strip(), system, problems)
    if kind == "arguments" and is_script(body, source):
        return _launched(body, source, world, env, problems)
    if env:
        problems.add("PP505", "`--env` goes with a launch script", help="leave it out: this is no script that reads variables")
        problems.raise_if_any()
    if kind == "registry":
        of = SYSTEMS[system] if system is not None else _of_python(body)
        return _read(of.name, _registry(of, body, source, problems), world, problems)
    document = read_document(body, source, kind, problems)
    if _MEGATRON_TESTS in document.data and system in (None, "megatron"):
        return _read("megatron", as_arguments(document, _MEGATRON_TESTS, problems), world, problems)
    chosen = SYSTEMS[system] if system is not None else _recognise(document, kind, problems)
    return _read(chosen.name, document, world, problems)


def _read(system: str, document: Document, world: int | None, problems: Problems) -> Imported:
    module = importlib.import_module(f"placeproof.importers.{system}.reader")
    imported: Imported = module.read(document, world, problems)
    problems.raise_if_any()
    return imported


def _launched(text: str, source: str, world: int | None, env: Sequence[str], problems: Problems) -> Imported:
    """What a launch script starts. ``world`` goes before what the script says."""
    from placeproof.importers.shell.launch import launch

    started = launch(text, source, problems, env)
    if started is None or problems.found:
        problems.raise_if_any()
    assert started is not None
    imported = _read(started.system, started.document, world or started.world, problems)
    return replace(imported, readings=(*imported.readings, *started.told(world)))


def _of_python(body: str) -> System:
    """The system that a file of Python is of, by what it imports; torchtitan's where that says none."""
    imported = {found[1] for found in _IMPORT.finditer(body)}
    for system in SYSTEMS.values():
        if any(name == one or name.startswith(f"{one}.") for one in system.imports for name in imported):
            return system
    return SYSTEMS["torchtitan"]


def _registry(of: System, body: str, source: str, problems: Problems) -> Document:
    """What a function of a file of Python returns: ``config_registry.py:llama3_8b``."""
    module = importlib.import_module(f"placeproof.importers.{of.name}.{of.registry}")
    named = REGISTRY.fullmatch(source)
    made: Document = module.document(body, named["path"] if named else source, (named["name"] if named else "") or "", problems)
    return made


def _text(text: str, system: str | None, problems: Problems) -> tuple[str, str, str]:
    if not text:
        problems.add("PP501", "there is nothing to read: the text is empty", help="give a file, or the configuration itself")
        problems.raise_if_any()
    kinds = SYSTEMS[system].kinds if system is not None else ()
    if kinds and (text.startswith(("--", "{", "[")) or "\n" in text or (kinds[0] == "overrides" and NAME.match(text) is not None)):
        return text, f"<{system}>", "hjson" if text.startswith("{") and "hjson" in kinds else kinds[0]
    named = REGISTRY.fullmatch(text)
    path = named["path"] if named else text
    body = read_text(path, code="PP501", help="give the path of a readable configuration")
    kind = config_kind(text) or ""
    launched = kind == "arguments" and is_script(body, text)
    return body, text, kind if kind in kinds or not kinds or launched else kinds[0]


def _by_bases(data: Mapping[str, Any]) -> list[System]:
    """NeMo RL, of a file that says little but the files that it is laid over: Hydra's `defaults` are groups, not files alone."""
    said = data.get("defaults")
    names = [said] if isinstance(said, str) else said
    paths = isinstance(names, list) and names and all(isinstance(name, str) and name.endswith((".yaml", ".yml")) for name in names)
    return [SYSTEMS["nemorl"]] if paths else []


def _recognise(document: Document, kind: str, problems: Problems) -> System:
    data: Mapping[str, Any] = document.data
    if not data:
        place = Place(source=document.source, line=1, column=1, text=(document.text.splitlines() or [""])[0])
        problems.add("PP501", "there is nothing in it: neither a configuration nor a strategy", place=place, help="is it the right file?")
        problems.raise_if_any()
    systems = [s for s in SYSTEMS.values() if s.recognises(kind, data.keys())] or _by_bases(data)
    if not systems and MODEL_TYPE in data:
        message = "this is the configuration of a model: it says shapes and no strategy"
        problems.add("PP501", message, place=document.place(MODEL_TYPE), help="read it with `placeproof.importers.read_shapes`")
        problems.raise_if_any()
    if not systems:
        known = "; ".join(f"{s.title}: " + ", ".join(f"`{m}`" for m in s.marks) for s in SYSTEMS.values() if kind in s.kinds)
        place = Place(source=document.source, line=1, column=1, text=(document.text.splitlines() or [""])[0])
        problems.add("PP501", "no system is recognised that writes this", place=place, help=f"name it with `--from`; {known}")
        problems.raise_if_any()
    if len(systems) > 1:
        titles = " and ".join(s.title for s in systems)
        named = " or ".join(f"`--from {s.name}`" for s in systems)
        mark = next(key for key in data if key in systems[0].marks)
        problems.add("PP501", f"this may be of {titles}", place=document.place(mark), help=f"say which: {named}")
        problems.raise_if_any()
    return systems[0]
