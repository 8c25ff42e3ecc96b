"""Launch scripts: words are those that bash hands to a program, and what a script does not say is told and not guessed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shell_scripts import Scripts, agrees, walked

from placeproof.core.diagnostics import InputError
from placeproof.importers import Imported, Role, read_config
from placeproof.importers.settings import settings
from placeproof.importers.shell.programs import FORKS
from placeproof.importers.shell.values import UnreadError, Word, plain, shown
from placeproof.importers.shell.walk.frames import Command
from placeproof.importers.shell.walk.simple import Shell

BASH = shutil.which("bash")
RECORD = Path(__file__).parents[1] / "data" / "launch_scripts.json"
#: What stands for the program: it writes its words down, and an end, at once, since others may run beside it.
STUB = '#!{bash}\nprintf "%s\\0" "$@" $\'\\1\' >> "$STUB_LOG"\n'
READING = "#!{bash}\nwhile read -r x; do :; done\n"
LEAST = "pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --attention-dropout 0 --hidden-dropout 0 --clip-grad 0"
#: What bash reports where a command is not run that we take as run: it fails, or something is missing that comes from outside.
FAILING = r"unbound variable|No such file|ambiguous redirect|indirect expansion|variable name|substring expr|error token|command not found"


# Against bash.


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs that scripts may run: nothing else is found."""
    folder = tmp_path_factory.mktemp("bin")
    for name, text in (("torchrun", STUB), ("cat_stub", READING)):
        (folder / name).write_text(text.format(bash=BASH))
        (folder / name).chmod(0o755)
    if BASH is not None:
        (folder / "bash").symlink_to(os.path.realpath(BASH))
    return folder


def by_bash(script: str, folder: Path, tmp_path: Path) -> tuple[list[list[str]], str] | None:
    """What bash hands over, and what it reports; None where it does not come to an end."""
    assert BASH is not None
    log = tmp_path / "log.txt"
    log.unlink(missing_ok=True)
    empty = tmp_path / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    around = {"PATH": str(folder), "STUB_LOG": str(log), "HOME": "/nonexistent"}
    try:
        run = subprocess.run(
            [BASH, "-c", script], cwd=empty, env=around, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    text = log.read_text(errors="replace") if log.exists() else ""
    return [words.split("\0")[:-1] for words in text.split("\1\0")[:-1]], run.stderr.decode(errors="replace")


def launched(shell: Shell) -> list[tuple[Command, tuple[Word, ...]]]:
    """The commands that run the program, with its words."""
    commands = []
    for command in shell.commands:
        names = [shown(word.text) for word in command.words]
        if "torchrun" in names:
            commands.append((command, command.words[names.index("torchrun") + 1 :]))
    return commands


def differ(script: str, folder: Path, tmp_path: Path) -> str:
    """How what we say differs from what bash does: empty where it does not, `refused` and `skipped` where that cannot be said."""
    try:
        shell = walked(script)
    except UnreadError:
        return "refused"
    run = by_bash(script, folder, tmp_path)
    if run is None or "syntax error" in run[1] or "EOF" in run[1]:
        return "skipped"
    theirs, ours = run[0], launched(shell)
    unclear = any(command.under for command, _ in ours) or re.search(r"\b(break|continue|exit|return|exec)\b|&(?![>&])", script)
    if unclear and all(any(agrees(words, run) for _, words in ours) for run in theirs):
        return ""
    if len(theirs) == len(ours) and all(agrees(words, run) for (_, words), run in zip(ours, theirs, strict=True)):
        return ""
    return "skipped" if re.search(FAILING, run[1]) else f"bash: {theirs}\nhere: {[[shown(w.text) for w in words] for _, words in ours]}"


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize("seed", range(8))
def test_words_are_those_that_bash_hands_over(seed: int, bin_folder: Path, tmp_path: Path) -> None:
    results = []
    for number in range(25):
        script = Scripts(seed * 1000 + number).made(wrong=0.3)
        results.append(differ(script, bin_folder, tmp_path))
        assert results[-1] in ("", "refused", "skipped"), script
    assert results.count("") > 8


#: Scripts in which a reader of shells goes wrong easily.
TRICKY = [
    "S='a b'; torchrun $S",
    "S='a b'; torchrun \"$S\"",
    'S=; torchrun $S "$S" x',
    "S='a  b'; T=$S; torchrun \"$T\"",
    "torchrun a\"b c\"'d e'f",
    "torchrun 'it'\\''s' \"a\\\"b\" a\\ b",
    "torchrun \"a\\nb\" 'a\\nb' a\\nb $'a\\nb'",
    'IFS=,; S=a,b; torchrun $S "$S" a,b',
    'IFS=:; A=(a b); torchrun "${A[*]}"',
    "S='*.py'; torchrun $S",
    "set -f; S='*'; torchrun $S",
    'set -- a \'b c\'; torchrun $# $2 "$@" "$*" $*',
    'set -- a b c; shift; torchrun "$@"; shift 2; torchrun "$@" $#',
    "set -- -a x; while getopts a: o; do torchrun $o; done; torchrun end",
    "S='torchrun $N'; N=4; eval $S; eval \"$S\"; $S",
    "X='N=8'; eval $X; torchrun $N",
    "export S=1; bash -c 'torchrun $S'",
    "S=1; bash -c 'torchrun $S'",
    "S=1 bash -c 'torchrun $S'",
    "bash -c 'torchrun $0 $1 \"$@\"' z a 'b c'",
    '(S=1; torchrun $S); torchrun "$S" x',
    "S=0; { S=1; }; torchrun $S",
    "S=0; true | S=1; torchrun $S",
    "S=0; S=1 & wait; torchrun $S",
    "false && torchrun a; torchrun b",
    "true && torchrun a || torchrun b",
    "! true && torchrun a || torchrun b",
    "trap 'torchrun end' EXIT; torchrun a",
    "A=(a); A+=('b c' d); torchrun \"${A[@]}\" ${#A[@]}",
    'A=(a b); A+=c; torchrun "${A[@]}"',
    "A=(a b); torchrun $A ${A[1]} ${A[-1]}",
    'A=(a b c); torchrun "${A[@]:1}" "${A[@]:0:2}"',
    'A=(); torchrun "${A[@]}" x "${A[*]}"',
    "A=('a b' c); torchrun x\"${A[@]}\"y ${A[@]}",
    "A=(\n  a # one\n  # two\n  'b c'\n); torchrun \"${A[@]}\"",
    "X=a/b/a; torchrun ${X/a/z} ${X//a/z} ${X/#a/z} ${X/%a/z} ${X//\\//_}",
    "X=a.b.c; torchrun ${X#*.} ${X##*.} ${X%.*} ${X%%.*} ${#X}",
    "X=abcd; torchrun ${X:1} ${X:1:2} ${X: -1} ${X:0:-1}",
    "X=aB; torchrun ${X^^} ${X,,} ${X^} ${X,}",
    "N=3; torchrun $((N * 2 + 010 - 0x1F / 2 % 4))",
    "N=3; ((N++)); ((N += 2)); torchrun $N $((N > 2 ? N : 0)) $((-7 / 2)) $((-7 % 3)) $((2 ** 3 ** 2))",
    "N='1 + 2'; torchrun $((N * 2)) $(($N * 2))",
    "f() { local N=1; g; }; g() { torchrun $N; N=2; }; N=0; f; torchrun $N",
    "f() { N=1; return 1; N=2; }; f || torchrun $N",
    "f() { torchrun \"$@\" $#; }; f a 'b c'; S='x y'; f $S",
    'f() { shift; torchrun "$1"; }; set -- z; f a b; torchrun $1',
    "case ab in a?) torchrun 1 ;; *) torchrun 2 ;; esac",
    "case 'a b' in a|'a b') torchrun 1;; esac",
    "S='*'; case x in \"$S\") torchrun 1;; $S) torchrun 2;; esac",
    'for i in a \'b c\' "d e"; do torchrun $i "$i"; done; torchrun $i',
    "for i in 1 2 3; do [ $i = 2 ] && continue; torchrun $i; done",
    "for i in 1 2; do for j in a b; do [ $j = b ] && break 2; torchrun $i $j; done; done",
    "i=0; while [ $i -lt 3 ]; do i=$((i+1)); torchrun $i; done",
    "for ((i = 0; i < 3; i++)); do torchrun $i; done",
    "torchrun a \\\n  b \\\n  # c \\\n  --d",
    "torchrun a \\\n\n--b",
    "torchrun a # b c\ntorchrun a#b",
    "cat_stub <<EOF\ntorchrun no\nEOF\ntorchrun yes",
    "bash <<EOF\ntorchrun \\$S\nEOF",
    "S=1; bash <<EOF\ntorchrun $S\nEOF",
    "bash <<'EOF'\ntorchrun $S x\nEOF",
    "torchrun > log a 2>&1 b",
    "torchrun 2> log 3 4",
    "torchrun 2 > log",
    "if [ x ]; then torchrun a; elif [ y ]; then torchrun b; fi",
    "[[ a == a* ]] && torchrun 1",
    "S='a*'; [[ ab == $S ]] && torchrun 1; [[ ab == \"$S\" ]] || torchrun 2",
    "[[ 10 -gt 9 && ! ( a < b && x ) ]] || torchrun 1",
    '[ -z "" -a -n x ] && torchrun 1',
    "[[ abc =~ ^a.c$ ]] && torchrun 1",
    "[ 10 -gt 9 ] && torchrun 1",
    "[[ 010 -eq 8 ]] && torchrun 1; [ 010 -eq 10 ] && torchrun 2",
    "S=; [ $S ] || torchrun 1",
    "set -e; false || true; torchrun 1; [ a = b ]; torchrun 2",
    "set -e; false && true; torchrun 1",
    "set -e; ((0)) || true; N=0; ((N++)); torchrun 1",
    "declare -A M=([a]=1 ['b c']=2); K='b c'; torchrun ${M[a]} ${M[$K]}",
    'export A=1 B=$A; torchrun "$B"',
    "A=1 B=$A; torchrun $B",
    "A=0; A=1 torchrun $A; torchrun $A",
    "torchrun \"${X:-a b}\" ${X:-a b} ${X:-'a b'} \"${X:-'a b'}\"",
    'X=; torchrun ${X-a} ${X:-b} "${X:+c}" ${X+d}',
    "torchrun ${X:=5}; torchrun $X",
    "X=1; unset X; torchrun ${X-u}",
    "A=1 B=2\nif true; then A=3 B=4\nelse A=5\nfi; torchrun $A",
    "X=${Y:-${Z:-3}}; torchrun $X",
    'torchrun "$(echo \'"\')" x',
    "P=S; S=5; torchrun ${!P}",
    "exec torchrun a\ntorchrun b",
    "exit\ntorchrun b",
    "command torchrun a; time torchrun b",
    "torchrun {a} {} a,b",
    "torchrun a;torchrun b&torchrun c;wait",
    "f() { exit; }; (f); torchrun a",
    "bash -ec 'torchrun a; false; torchrun b'",
    "bash -c 'torchrun a; false; torchrun b'",
    "case $# in 0) torchrun none;; *) torchrun some;; esac",
    '[ "${D:-0}" = 1 ] && torchrun d; (( ${N:-4} > 2 )) && torchrun e',
    "Q='\"a b\"'; torchrun $Q; eval torchrun $Q",
    'A=(1 2 3); A=("${A[@]:1}" 4); torchrun ${A[@]}; unset A; torchrun "${A[@]}" x',
    '[[ -n $U || a == b ]] || torchrun z; [[ "x" == [xy] ]] && torchrun u',
    "OLD=$IFS; IFS=,; X=a,b; Y=($X); IFS=$OLD; torchrun ${Y[@]}",
    "readonly R=1; torchrun $R",
    'S=$(torchrun in); torchrun "x$S"',
    'set -- ; for a in "$@"; do torchrun $a; done; torchrun "$@" "x$@"',
    "torchrun ${@:-d} ${1:-e}",
    "N=1; N+=2; torchrun $N",
]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize("script", TRICKY)
def test_a_tricky_script_is_read_as_bash_runs_it(script: str, bin_folder: Path, tmp_path: Path) -> None:
    assert differ(script, bin_folder, tmp_path) == ""
    run = by_bash(script, bin_folder, tmp_path)
    assert run is not None
    assert bool(run[0]) == bool(launched(walked(script)))


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A=3; torchrun ${X:-$((A*2))}", "6"),
        ('A=3; torchrun "${X:-$((2 * A + 2))}"', "8"),
        ("A=3; : ${X:=$((A*2))}; torchrun $X", "6"),
        ("torchrun {1..3} {3..1..2} {08..10} {c..a} x{,y}", "1 2 3 3 1 08 09 10 c b a x xy"),
        ("N=2; torchrun a{$N-,{b,c}d}e {a} {} {a,", "a2-e abde acde {a} {} {a,"),
        ("A=({1..2} --x={a,b}); torchrun ${A[@]}", "1 2 --x=a --x=b"),
        ("N=2; torchrun {1..$N}", None),
        ("X={a,b}; torchrun $X", "{a,b}"),
        ('B+=(${OUT1} a); torchrun "${B[*]}"', None),
        ("torchrun {1..2000}", None),
        ("torchrun {a..Z}", None),
        ("declare -i N=4*2 M; M=N+1; M+=2; torchrun $N $M", "8 11"),
        ("declare -i N=1; unset N; N=1+1; torchrun $N", "1+1"),
        ("torchrun $((16#ff)) $((2#101 + 1))", "255 6"),
    ],
)
def test_what_is_worked_out(script: str, words: str | None, bin_folder: Path, tmp_path: Path) -> None:
    """And what stays open, where ``words`` are None."""
    assert differ(f"{script}\n", bin_folder, tmp_path) == ""
    ((_, ours),) = launched(walked(f"{script}\n"))
    texts = [plain(word.text) for word in ours]
    assert None in texts if words is None else texts == words.split()


def test_numbers_on_one_side_of_a_branch_are_refused() -> None:
    with pytest.raises(UnreadError):
        walked("if [ $OUT = 1 ]; then declare -i N; fi; N=1+1; torchrun $N\n")


@pytest.mark.parametrize(
    "script",
    [
        "shopt -s expand_aliases",
        "enable -n echo",
        "declare -n R=S",
        "f() { local -i N=1+1; }; f",
        "declare -i N=1; f() { local N=1+1; }; f",
        "A[5]=x",
        "R=1; readonly R; R=2",
        "echo $[1+1]",
        "set -o posix",
        "trap 'N=1' DEBUG",
        "coproc a",
        "select x in a; do b; done",
        "X=1; torchrun ${X:1+}",
        "torchrun $((08))",
        "torchrun $((1/0))",
        "case a in a) b ;& c) d ;; esac",
        "A=3; torchrun $((echo $A); (echo 2))",
        "export() { :; }",
        "S='a",
        "X=<fill in>",
        "local X=1",
        "eval $(cmd)=1; unset $X",
        "[[ a =~ (?i)a ]]",
        "shopt -s lastpipe",
        "f() { f; }; f",
        "while true; do :; done",
        "printf -v $X a",
        "X=1; torchrun \"${X%'}'*}\"",
    ],
)
def test_what_is_not_understood_is_refused(script: str) -> None:
    with pytest.raises(UnreadError) as raised:
        walked(f"{script}\n")
    assert raised.value.message
    assert raised.value.span[0] == 1


# What a script starts.


def read(script: str, world: int | None = None) -> Imported:
    """A script, read as a configuration."""
    return read_config(f"#!/bin/bash\n{script}\n", system="megatron", world=world)


def refused(script: str) -> str:
    """The messages with which a script is refused."""
    with pytest.raises(InputError) as raised:
        read(script)
    assert all(problem.place is not None and problem.help for problem in raised.value.diagnostics)
    return "\n".join(problem.message for problem in raised.value.diagnostics)


def degrees(script: str) -> str:
    """The strategy of a script that sets what its arguments are to be."""
    return read(script).expression


@pytest.mark.parametrize(
    ("script", "expression"),
    [
        (f"torchrun --nproc_per_node 8 {LEAST} --tensor-model-parallel-size 2", "ddp(dp=4) * tp(tp=2)"),
        (
            f"TP=${{TP:-2}}\nARGS=(--tensor-model-parallel-size $TP)\ntorchrun --nproc_per_node=8 {LEAST} ${{ARGS[@]}}",
            "ddp(dp=4) * tp(tp=2)",
        ),
        (f"N=2\ntorchrun --nproc_per_node 8 --nnodes $N {LEAST}", "ddp(dp=16)"),
        (f"python -m torch.distributed.launch --nproc_per_node 4 {LEAST}", "ddp(dp=4)"),
        (f"python3 -m torch.distributed.run --nproc-per-node 4 --nnodes=2 {LEAST}", "ddp(dp=8)"),
        (f"srun -N2 --ntasks-per-node 4 python {LEAST}", "ddp(dp=8)"),
        (f"srun --ntasks=6 python {LEAST}", "ddp(dp=6)"),
        (f"mpirun -np 4 python {LEAST}", "ddp(dp=4)"),
        (f"accelerate launch --num_processes 4 {LEAST}", "ddp(dp=4)"),
        (f"deepspeed --num_gpus 4 --num_nodes 2 {LEAST}", "ddp(dp=8)"),
        (f"deepspeed --num_gpus 4 --hostfile h {LEAST}", "ddp"),
        (f"torchrun --nproc_per_node gpu {LEAST}", "ddp"),
        (f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\nsrun python {LEAST}", "ddp(dp=8)"),
        (f"#SBATCH -N 4 --gres=gpu:8\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE {LEAST}", "ddp(dp=32)"),
        (f"CMD='{LEAST}'\nsrun -n 2 bash -c \"python $CMD --bf16\"", "ddp(dp=2)"),
        (f"if [ -z $TP ]; then TP=2; fi\ntorchrun --nproc_per_node 4 {LEAST} --tensor-model-parallel-size $TP", "ddp(dp=2) * tp(tp=2)"),
        (f"if [ $# -lt 1 ]; then echo usage; exit 1; fi\ntorchrun --nproc_per_node 4 {LEAST} --data-path $1", "ddp(dp=4)"),
        (f"TP=1\nif [ $TP -gt 1 ]; then S=--sequence-parallel; fi\ntorchrun --nproc_per_node 4 {LEAST} $S", "ddp(dp=4)"),
        (f"run() {{ torchrun --nproc_per_node $1 {LEAST}; }}\nrun 4 | tee log", "ddp(dp=4)"),
        (f"python tools/preprocess_data.py --workers 4\ntorchrun --nproc_per_node 4 {LEAST} --save $(date)/x", "ddp(dp=4)"),
        (f"if [ -d /data ]; then L=--log-throughput; fi\ntorchrun --nproc_per_node 4 {LEAST} $L", "ddp(dp=4)"),
    ],
)
def test_the_strategy_of_a_script(script: str, expression: str) -> None:
    assert degrees(script) == expression


def test_the_world_of_the_command_line_goes_before_that_of_the_script() -> None:
    imported = read(f"torchrun --nproc_per_node 8 {LEAST}", world=16)
    assert imported.expression == "ddp(dp=16)"
    (reading,) = [reading for reading in imported.readings if reading.name == "devices"]
    assert reading.value == 8
    assert "16 is taken" in reading.note
    assert reading.told


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (f"torchrun {LEAST} --tensor-model-parallel-size $TP", "`$TP`, and the script does not say"),
        (f"torchrun {LEAST} --tensor-model-parallel-size $1", "handed to the script when it is started"),
        (f"TP=$(nvidia-smi | wc -l)\ntorchrun {LEAST} --tensor-model-parallel-size $TP", "it is what a command prints"),
        (f"if [ -f x ]; then TP=2; else TP=4; fi\ntorchrun {LEAST} --tensor-model-parallel-size $TP", "it depends on `[ -f x ]`"),
        (f"if [ $X = a ]; then S=--sequence-parallel; fi\ntorchrun {LEAST} $S", "whether `--sequence-parallel` is handed over"),
        (f"if [ $X = a ]; then S=--group-query-attention; fi\ntorchrun {LEAST} $S", "whether `--group-query-attention` is handed over"),
        (f"source other.sh\ntorchrun {LEAST} --num-layers ${{L:-4}}", "`other.sh` may set it"),
        (f"TP=2\nsource other.sh\ntorchrun {LEAST} --tensor-model-parallel-size $TP", "`other.sh` may set it"),
        (f"torchrun {LEAST} $(cat args.txt)", "may be any arguments"),
        (f"torchrun {LEAST} --clip-grad $CLIP", "`--clip-grad` is `$CLIP`"),
        (f"torchrun {LEAST}\ntorchrun {LEAST} --bf16", "starts 2 programs"),
        (f'if [ -n "$D" ]; then :; fi\nif [ $D = 1 ]; then torchrun {LEAST}; else torchrun {LEAST} --bf16; fi', "starts 2 programs"),
        (f"set -e\nfalse\ntorchrun {LEAST}", "no program is found"),
        ("python train.py --epochs 4", "no program is found that is given Megatron-LM's arguments; it runs `python train.py"),
        ("bash train_inner.sh", "it runs `train_inner.sh`"),
        (
            f"if [ -z $M ]; then exit; fi\nX=${{M:-}}\nif [ -z $X ]; then exit 1; fi\ntorchrun {LEAST}",
            "it ends in line 4 where these are not set: `$M`",
        ),
        (f"deepspeed {LEAST} --deepspeed --zero-stage 1", "this starts Megatron-DeepSpeed: `--deepspeed` is its argument"),
        ("ray job submit -- python3 train.py --num-layers 4 --hidden-size 64 --actor-num-nodes 2", "this starts slime"),
        ("NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3 --tensor_model_parallel_size 2", "this starts ms-swift: `megatron sft`"),
        ("python -m verl.trainer.main_ppo data.x=1", "`x` is no setting of `data`"),
        ("python -m verl.trainer.sft_trainer data.x=1", "this starts verl"),
        ("torchrun examples/nlp/megatron_gpt_pretraining.py trainer.devices=8 model.tensor_model_parallel_size=2", "this starts NeMo"),
        (f"torchrun {LEAST} --use-fused-rmsnorm", "this starts MindSpeed"),
        (f"torchrun {LEAST} --noSuchThing 3", "`noSuchThing` is no setting"),
        (f"torchrun {LEAST} --seq-length 4 8", "`seq_length`"),
        ("torchrun pretrain_gpt.py stray --num-layers 4 --hidden-size 4", "`stray` belongs to no `--name`"),
        (f"X=<path>\ntorchrun {LEAST}", "is to be filled in"),
        (f"torchrun {LEAST} --pipeline-model-parallel-layout E*L", "it stands for names of files"),
        (f"torchrun {LEAST} \\\r\n  --bf16", "its lines end as those of Windows do"),
    ],
)
def test_what_a_script_does_not_say_is_refused_by_name(script: str, message: str) -> None:
    assert message in refused(script)


def test_what_is_taken_as_not_set_is_told() -> None:
    imported = read(f'torchrun --nproc_per_node 4 {LEAST} --micro-batch-size ${{MBS:-2}} $EXTRA "$@"')
    assert imported.numbers["b"] == 2
    readings = {reading.name: reading for reading in imported.readings}
    assert readings["variables from outside"].value == "$MBS"
    assert readings["variables from outside"].told
    assert readings["$EXTRA"].role is Role.ANOTHER_STEP
    assert readings["$@"].role is Role.ANOTHER_STEP


def test_an_open_value_of_no_matter_is_told() -> None:
    imported = read(f"torchrun --nproc_per_node 4 {LEAST} --data-path $DATA --save /ckpt/$(date) --lr $LR")
    readings = {reading.name: reading for reading in imported.readings}
    assert all(readings[name].role is Role.NO_MATTER for name in ("data_path", "save", "lr"))
    assert "the script does not say it" in readings["data_path"].note


def test_nothing_is_run(tmp_path: Path) -> None:
    traces = [tmp_path / name for name in ("a", "b", "c")]
    script = f"touch {traces[0]}\nX=$(touch {traces[1]})\neval 'echo > {traces[2]}'\ntorchrun {LEAST}"
    assert read(script).expression
    assert not any(trace.exists() for trace in traces)


def test_files_beside_a_script_are_read(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.sh").write_text("MODEL=(--num-layers 4 --hidden-size 64 --num-attention-heads 4)\n")
    script = tmp_path / "run.slurm"
    script.write_text(
        'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\nsource "$HERE/models/tiny.sh"\n'
        "torchrun --nproc_per_node 2 pretrain_gpt.py ${MODEL[@]} --bf16\n"
    )
    assert read_config(str(script)).expression == "ddp(dp=2) * clip"
    script.write_text("bash models/tiny.sh\nsource models/none.sh\ntorchrun pretrain_gpt.py ${MODEL[@]} --num-layers 4 --hidden-size 8\n")
    with pytest.raises(InputError, match="may be any arguments"):
        read_config(str(script))


@pytest.mark.parametrize(
    ("folder", "here"),
    [
        ('$(dirname "$0")', True),
        ("$(dirname $0)", True),
        ("`dirname $0`", True),
        ('$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)', True),
        ('$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &> /dev/null && pwd)', True),
        ('$(cd "$(dirname "$0")/.." && pwd)', False),
        ("$(dirname $(dirname $0))", False),
        ('$(cd "$(dirname "$0")/sub" && pwd)', False),
        ("$(pwd)", False),
    ],
)
def test_the_folder_of_a_script(folder: str, here: bool, tmp_path: Path) -> None:
    (tmp_path / "tiny.sh").write_text("L=4\n")
    script = tmp_path / "run.sh"
    script.write_text(f"source {folder}/tiny.sh\ntorchrun pretrain_gpt.py --num-layers $L --hidden-size 64\n")
    if here:
        assert read_config(str(script)).numbers["L"] == 4
    else:
        with pytest.raises(InputError, match="may set it, which is not read"):
            read_config(str(script))


def test_a_file_whose_lines_end_as_those_of_windows_do_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_bytes(f"torchrun {LEAST}\r\n".encode())
    with pytest.raises(InputError, match="Windows"):
        read_config(str(script))


def test_arguments_of_megatrons_own_tests(tmp_path: Path) -> None:
    path = tmp_path / "model_config.yaml"
    lines = [
        "--num-layers: 4",
        "--hidden-size: 64",
        "--num-attention-heads: 4",
        "--bf16: true",
        "--data-path: ${DATA_PATH}/x",
        "--split: 949,50,1",
    ]
    lines += ["--moe-layer-freq: ([0]*1+[1]*3)", "--tensor-model-parallel-size: 2", "--recompute-modules: [mlp moe]", '--eval-iters: ""']
    path.write_text("ENV_VARS:\n  A: 1\nTEST_TYPE: regular\nMODEL_ARGS:\n" + "".join(f"  {line}\n" for line in lines))
    imported = read_config(str(path), world=4)
    readings = {reading.name: reading.value for reading in imported.readings}
    assert imported.expression == "ddp(dp=2) * tp(tp=2) * clip"
    assert readings["recompute_modules"] == ["mlp", "moe"]
    assert readings["data_path"] == "${DATA_PATH}/x"
    assert "eval_iters" not in readings
    path.write_text("MODEL_ARGS:\n  --num-layers: ${LAYERS}\n  --bf16: false\n")
    with pytest.raises(InputError, match="false"):
        read_config(str(path))
    path.write_text("MODEL_ARGS: [a]\n")
    with pytest.raises(InputError, match="table of arguments"):
        read_config(str(path))


def test_no_argument_of_megatron_gives_away_another_program() -> None:
    known = {name for field in settings("megatron") for name in field.names}
    assert not known & {mark for marks in FORKS.values() for mark in marks}


# Public scripts.


def test_no_public_script_is_read_wrong() -> None:
    rows = json.loads(RECORD.read_text())
    assert len(rows) >= 148
    assert len({row["repo"] for row in rows}) >= 41
    assert len({(row["repo"], row["path"]) for row in rows}) == len(rows)
    assert all(re.fullmatch(r"[0-9a-f]{40}", row[key]) for row in rows for key in ("commit", "blob"))
    assert {row["bash"] for row in rows} <= {"equal", "equal but for what is open", "not read", "nothing"}
    assert {row["outcome"] for row in rows if row["kind"] != "megatron"} == {"refused"}
    assert sum(row["bash"].startswith("equal") for row in rows) >= 116


@pytest.mark.parametrize(
    "lines",
    [
        'IFS=, read -ra L <<< "2,4"; TP=${L[1]:-2}',
        'read -ra L <<< "2 4"; if [ -n "${L[1]}" ]; then TP=4; else TP=2; fi',
        "source missing.sh; TP=${L[1]:-4}",
        'TP=2; eval "$(python3 degrees.py)"',
        'TP=2; k=$(echo TP); eval "$k=4"',
        "TP=2; source /opt/missing.sh",
    ],
)
def test_what_something_else_may_set_is_open(lines: str) -> None:
    """Elements of a list that is read, or of what may be one; and everything behind a text that is run and not known."""
    with pytest.raises(InputError) as refused:
        read_config(f"#!/bin/bash\n{lines}\ntorchrun --nproc_per_node 4 {LEAST} --tensor-model-parallel-size $TP\n", system="megatron")
    assert any("tensor-model-parallel-size" in d.message for d in refused.value.diagnostics)


def test_programs_of_one_name_are_told_apart_by_what_they_are_given() -> None:
    said = refused(f"for T in 1 2; do torchrun --nproc_per_node 4 {LEAST} --seed 3 --tensor-model-parallel-size $T; done\n")
    assert "in line 2 with `--tensor-model-parallel-size 1`, `torchrun --nproc_per_node 4` in line 2 with `--tensor-model" in said
    assert "--seed" not in said


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        (f"/opt/run/torchrun --nproc_per_node 4 {LEAST} --tensor-model-parallel-size 2\n", "ddp(dp=2) * tp(tp=2)"),
        (
            f"singularity exec x.sif \\\n  torchrun --nproc_per_node 4 {LEAST} --tensor-model-parallel-size 2 | tee log\n",
            "ddp(dp=2) * tp(tp=2)",
        ),
        (f"# the model\nMODEL_ARGS=(\n{LEAST.removeprefix('pretrain_gpt.py ')}\n)\n", "ddp"),
        (LEAST.removeprefix("pretrain_gpt.py "), "ddp"),
    ],
)
def test_a_script_is_one_by_its_name_too(text: str, degrees: str, tmp_path: Path) -> None:
    """Without a first line that says so, it is no list of arguments with words before it; a list of arguments stays one."""
    (tmp_path / "run.sh").write_text(text)
    assert read_config(str(tmp_path / "run.sh")).expression == degrees


# What is said of the environment.


def with_env(script: str, *env: str, world: int | None = None) -> Imported:
    return read_config(f"#!/bin/bash\n{script}\n", system="megatron", world=world, env=env)


@pytest.mark.parametrize(
    ("script", "env"),
    [
        ("T=$TP\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $T", ("TP=4",)),
        ("torchrun --nproc_per_node 8 $L --tensor-model-parallel-size ${TP:-2}", ("TP=4",)),
        ('[ -n "$TP" ] && O="--tensor-model-parallel-size $TP"\ntorchrun --nproc_per_node 8 $L $O', ("TP=4",)),
        ("torchrun --nproc_per_node 8 $L --tensor-model-parallel-size $((N / 2))", ("N=8",)),
        ("torchrun --nproc_per_node $2 $L --tensor-model-parallel-size $1", ("1=4", "2=8")),
        ("T=$1\nshift\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $T $@", ("2=--bf16", "1=4")),
        ('torchrun --nproc_per_node 8 $L "$@"', ("1=--tensor-model-parallel-size", "2=4")),
        ("if [ $# -ne 1 ]; then exit 1; fi\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $1", ("1=4",)),
        ("case $KIND in big) T=4;; *) T=1;; esac\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $T", ("KIND=big",)),
        ("f() { T=$1; }\nf $TP\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $T", ("TP=4",)),
        ("#SBATCH --nodes=1\ntorchrun --nproc_per_node 8 $L --tensor-model-parallel-size $SLURM_JOB_ID", ("SLURM_JOB_ID=4",)),
    ],
)  # fmt: skip
def test_what_a_script_gets_from_outside_can_be_said(script: str, env: tuple[str, ...]) -> None:
    script = script.replace("$L", LEAST)
    found = with_env(script, *env)
    assert "tp(tp=4)" in found.expression
    told = next(reading for reading in found.readings if reading.name == "environment")
    assert told.told
    assert all(f"${text.partition('=')[0]} = {text.partition('=')[2]}" in str(told.value) for text in env)
    with contextlib.suppress(InputError):
        assert "tp(tp=4)" not in with_env(script).expression


@pytest.mark.parametrize(
    ("script", "env", "message"),
    [
        ("T=2\ntorchrun $L --tensor-model-parallel-size $T", ("TP=4",), "the script never reads `$TP`"),
        ("TP=2\ntorchrun $L --tensor-model-parallel-size $TP", ("TP=4",), "the script never reads `$TP`"),
        ("torchrun $L --tensor-model-parallel-size ${TPSIZE:-2}", ("TP_SIZE=4",), "the script never reads `$TP_SIZE`"),
        ("torchrun $L", ("1=4",), "the script never reads `$1`"),
        ("f() { T=$1; }\nf 2\ntorchrun $L --tensor-model-parallel-size $T", ("1=4",), "the script never reads `$1`"),
        ("torchrun $L --tensor-model-parallel-size $2", ("2=4",), "without an argument before it"),
        ("torchrun $L --tensor-model-parallel-size $TP", ("TP",), "names no variable with a value"),
        ("torchrun $L --tensor-model-parallel-size $TP", ("T-P=3",), "names no variable with a value"),
    ],
)
def test_what_a_script_never_reads_is_refused(script: str, env: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as raised:
        with_env(script.replace("$L", LEAST), *env)
    assert [d.code for d in raised.value.diagnostics] == ["PP505"]
    assert message in raised.value.diagnostics[0].message
    assert raised.value.diagnostics[0].help
    if "TPSIZE" in script:
        assert "`TPSIZE`" in raised.value.diagnostics[0].help


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("$TP", "`--env TP=8`"),
        ("$1", "`--env 1=8`"),
        ("$((TP * 2))", "`--env TP=8`"),
        ("$(( 2 * ${TP} ))", "`--env TP=8`"),
        ("$(($1 / 2))", "`--env 1=8`"),
        ("$((1 + $((TP * 2))))", "`--env TP=8`"),
    ],
)
def test_a_value_that_is_left_open_names_how_it_is_said(script: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        with_env(f"torchrun {LEAST} --tensor-model-parallel-size {script}")
    assert said in str(raised.value.diagnostics[0].help)


def test_a_file_that_is_no_script_has_no_environment() -> None:
    with pytest.raises(InputError, match="goes with a launch script"):
        read_config("--num-layers 4 --hidden-size 64", system="megatron", env=("TP=4",))
