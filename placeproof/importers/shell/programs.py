"""Which commands of a script start a training, and of which program: Megatron-LM, or one whose arguments mean something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from placeproof.importers.shell.devices import TORCHRUN
from placeproof.importers.shell.values import Open, Span, Text, Word, plain, shown
from placeproof.importers.shell.walk.frames import Command

#: What gives away that a program is given Megatron's arguments: two of these.
_MARKS = frozenset((
    "num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "global_batch_size",
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "seq_length", "encoder_num_layers",
    "max_position_embeddings",
))  # fmt: skip
#: Programs whose arguments mean something else, by arguments that they alone have.
FORKS = {
    "Megatron-DeepSpeed": (
        "deepspeed", "deepspeed_config", "zero_stage", "no_pipeline_parallel", "deepspeed_activation_checkpointing",
        "ds_inference",
        "ds_sequence_parallel_size", "universal_checkpoint", "cpu_optimizer", "create_moe_param_group",
    ),
    "slime": (
        "actor_num_nodes", "actor_num_gpus_per_node", "rollout_batch_size",
        "rollout_num_gpus", "rollout_num_gpus_per_engine", "num_rollout",
    ),
    "ms-swift": ("train_type", "tuner_type", "load_safetensors", "save_safetensors", "rlhf_type", "mcore_model", "merge_lora", "lora_rank"),
    "MindSpeed": (
        "use_fused_rotary_pos_emb", "use_fused_swiglu", "use_fused_rmsnorm", "context_parallel_algo", "tokenizer_name_or_path",
        "noop_layers",
        "moe_permutation_async_comm",
        "use_ascend_mc2", "gemm_gradient_accumulation_fusion", "reuse_fp32_param", "mm_data", "mm_model",
    ),
    "Pai-Megatron-Patch": ("patch_tokenizer_type", "max_padding_length", "extra_vocab_size", "model_type_name"),
    "Megatron-LLM of EPFL": ("no_tie_embed_logits", "glu_activation", "use_rms_norm", "vocab_extra_ids_list"),
    "BigCode's Megatron-LM": ("attention_head_type",),
}  # fmt: skip
#: Command lines whose arguments are not Megatron-LM's, by their names and the word behind them.
_COMMANDS = {
    "megatron": ("ms-swift", ("sft", "pt", "rlhf", "export")),
    "swift": ("ms-swift", ("sft", "pt", "rlhf", "export")),
    "llamafactory-cli": ("LLaMA-Factory", ("train",)),
    "axolotl": ("axolotl", ("train",)),
    "nemo": ("NeMo", ("llm",)),
    "automodel": ("NeMo Automodel", ()),
}
#: Modules whose settings are read, and of which system they are.
_READ = {"verl.trainer.main_ppo": "verl", "recipe.dapo.main_dapo": "verl", "recipe.dapo.src.main_dapo": "verl"}
_MODULES = re.compile(r"(verl|nemo|nemo_rl|torchtitan|MaxText|swift)\..+")
_OVERRIDE = re.compile(r"\+{0,2}(model|trainer|actor_rollout_ref|policy|cluster|exp_manager)\.[\w.]+=.*")


@dataclass(frozen=True, slots=True)
class Program:
    """A command that trains. ``before``: what launches it; ``fork``: the program where it is not read, and ``why`` that is known."""

    command: Command
    before: tuple[Word, ...]
    words: tuple[Word, ...]
    fork: str = ""
    why: str = ""
    system: str = "megatron"

    @property
    def arguments(self) -> tuple[tuple[Word, ...], Span]:
        """Its arguments, and where the command stands."""
        return self.words, self.command.span


def programs(commands: Iterable[Command]) -> list[Program]:
    """The commands that train, each once."""
    started = [program for command in commands if (program := _started(command)) is not None]
    return list({(program.fork, _texts(program.before), _texts(program.words)): program for program in reversed(started)}.values())[::-1]


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    return tuple(shown(word.text) for word in words)


def _started(command: Command) -> Program | None:
    texts = [plain(word.text) or "" for word in command.words]
    names = set(_options(word.text for word in command.words))
    for at, text in enumerate(texts):
        fork, behind = _COMMANDS.get(text.rpartition("/")[2], ("", ()))
        if fork and (not behind or set(texts[at + 1 : at + 2]) & set(behind)):
            return Program(command, command.words[:at], command.words[at + 1 :], fork, f"`{' '.join(texts[at : at + 2])}`")
    place = _program(texts, command.words)
    before, words = (command.words[:place], command.words[place + 1 :]) if place is not None else ((), command.words)
    if place is not None and texts[place] in _READ:
        return Program(command, before, words, system=_READ[texts[place]])
    if place is not None and (module := _MODULES.fullmatch(texts[place])) is not None:
        return Program(command, before, words, module[1], f"`{texts[place]}`")
    override = next((text for text in texts if _OVERRIDE.fullmatch(text)), None)
    if override is not None:
        return Program(command, before, words, "NeMo or another program with settings of its own", f"`{override}`")
    for fork, marks in FORKS.items():
        mark = next((mark for mark in marks if mark in names), None)
        if mark is not None and (place is not None or names & _MARKS):
            return Program(command, before, words, fork, f"`--{mark.replace('_', '-')}` is its argument")
    return Program(command, before, words) if place is not None and len(names & _MARKS) > 1 else None


def _program(texts: Sequence[str], words: Sequence[Word]) -> int | None:
    """Where the program stands: a module, or a script of Python, or what is open and may be one."""
    for at, word in enumerate(words):
        module = at > 0 and texts[at - 1] == "-m" and texts[at].rpartition("/")[2] not in TORCHRUN
        last = word.text[-1] if word.text else ""
        if module or (isinstance(last, str) and last.endswith(".py") and not shown(word.text).startswith("-")):
            return at
    for at, word in enumerate(words):
        named = word.text and all(isinstance(part, Open) and _may_be_program(part) for part in word.text)
        if not named or (at and texts[at - 1].startswith("-")):
            continue
        if _MARKS & set(_options(rest.text for rest in words[at + 1 :])):
            return at
    return None


def _may_be_program(part: Open) -> bool:
    """Whether something open may be a script of Python."""
    return all(len(side) == 1 and side[0] and str(side[0][-1]).endswith(".py") for side in part.sides)


def _options(texts: Iterable[Text]) -> Iterator[str]:
    """Names of options, also of those that stand on the sides of something open."""
    for text in texts:
        for at, part in enumerate(text):
            if isinstance(part, Open):
                yield from option_names(part)
            elif not at and (name := re.match(r"--([^\s=]+)", part)):
                yield name[1].replace("-", "_")


def option_names(part: Open) -> Iterator[str]:
    """The options that stand on the sides of something open."""
    for text in (text for words in part.sides for text in words):
        for piece in text:
            if isinstance(piece, Open):
                yield from option_names(piece)
            else:
                yield from (name.replace("-", "_") for name in re.findall(r"(?:^|(?<=\s))--([^\s=]+)", piece))
