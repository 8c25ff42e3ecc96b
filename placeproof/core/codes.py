"""Every error code: what it means, an input that has it, and what to do. Tests run each example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """One error code. ``example`` is an input of the kind named (``strategy``, ``file``, ``program``, ``set``)."""

    code: str
    title: str
    meaning: str
    kind: str
    example: str
    remedy: str


_ROWS = (
    Code(
        code="PP101",
        title="unknown strategy",
        meaning="The name is neither in the catalogue nor the path of a strategy file.",
        kind="strategy",
        example="zerro3",
        remedy="`placeproof list strategies` shows the catalogue; a file's name ends in .toml.",
    ),
    Code(
        code="PP102",
        title="malformed strategy expression",
        meaning="A strategy expression is names (or files) joined by `*`, each with degrees and options in parentheses. A placement on one "
        "axis may stand for a name: `(S*, S, S, R)`.",
        kind="strategy",
        example="zero3(8",
        remedy="Write `zero3`, `zero1(64) * tp(8)` or `fsdp(reshard_after_forward=false)`.",
    ),
    Code(
        code="PP103",
        title="bad degree",
        meaning="A degree, or the size of a sub-group, is a whole number of at least 1; a sub-group divides its axis.",
        kind="strategy",
        example="zero3(0)",
        remedy="Give a whole number, or leave the degree out to keep it symbolic.",
    ),
    Code(
        code="PP104",
        title="bad option",
        meaning="The strategy has no such option, or the option cannot have that value.",
        kind="strategy",
        example="zero3(prefetch=maybe)",
        remedy="`placeproof explain STRATEGY` lists the options with the values that each can have.",
    ),
    Code(
        code="PP105",
        title="one state placed twice on one axis",
        meaning="Two strategies of a composition say how the same state lies on the same axis.",
        kind="strategy",
        example="zero1 * zero3",
        remedy="Keep one of them, or give one an axis of its own (hsdp has two data-parallel axes).",
    ),
    Code(
        code="PP106",
        title="one axis, two sizes or two purposes",
        meaning="Two strategies share an axis but disagree on its degree or on what it splits.",
        kind="strategy",
        example="tp(8) * sp(4)",
        remedy="Say the degree once, or the same in both.",
    ),
    Code(
        code="PP107",
        title="two schedules",
        meaning="Two strategies of a composition set the same part of the schedule differently.",
        kind="strategy",
        example="accumulate(4) * pp(microbatches=8)",
        remedy="Say it in one of them.",
    ),
    Code(
        code="PP108",
        title="a strategy lacks what it builds on",
        meaning="The strategy works on an axis where another strategy must place a state, and none does.",
        kind="strategy",
        example="sp",
        remedy="Compose it with that strategy: `tp * sp`.",
    ),
    Code(
        code="PP110",
        title="unreadable file",
        meaning="The file does not exist, cannot be read or written, is too large, or is not TOML.",
        kind="file",
        example='name = "mine',
        remedy="Mend the line that the message points at.",
    ),
    Code(
        code="PP111",
        title="unknown key or name in a file",
        meaning="The file of a strategy, a schedule or a cluster has a key that such files do not have, or names what is not there: an "
        "axis, a state, an option, a number format.",
        kind="file",
        example='name = "mine"\n[axes.dp]\n[placement.dp]\nparametres = "R"\n',
        remedy="The message lists the keys that may stand there.",
    ),
    Code(
        code="PP112",
        title="a value of the wrong kind in a file",
        meaning="A key has a value that it cannot have: a mode that does not exist, phases that give no order, a level of links that joins "
        "no whole nodes.",
        kind="file",
        example='name = "mine"\n[axes.dp]\n[placement.dp]\nparameters = "Q"\n',
        remedy='The message says what may stand there. Modes of a strategy are "R", "S", "S*", "M" and "O".',
    ),
    Code(
        code="PP113",
        title="a key is missing in a file",
        meaning="The file lacks what it needs: a strategy its name, a schedule its phases, a cluster its device and links.",
        kind="file",
        example='title = "mine"\n',
        remedy='Add the key that the message names, such as `name = "..."` at the top of a strategy.',
    ),
    Code(
        code="PP120",
        title="a mode that no device could use",
        meaning="A state lies so that the computation cannot reach it, such as sharded parameters that nothing gathers.",
        kind="file",
        example='name = "mine"\n[axes.dp]\n[placement.dp]\nparameters = "S"\n',
        remedy="Place parameters `S*` on an axis that splits the batch, so that they are gathered unit by unit for each use.",
    ),
    Code(
        code="PP121",
        title="a device would update what it does not compute with",
        meaning="On an axis that splits the computation, parameters, gradients and optimizer state must lie alike.",
        kind="file",
        example='name = "mine"\n[axes.tp]\n[placement.tp]\nparameters = "S"\ngradients = "S"\n',
        remedy="Place all three alike on that axis.",
    ),
    Code(
        code="PP122",
        title="not lowered",
        meaning="The placement may be sensible, but placeproof does not know its step program.",
        kind="file",
        example='name = "mine"\n[axes.ep]\n[placement.ep]\nparameters = "S"\noptimizer = "S"\ngradients = "S"\n',
        remedy="Write the step program down and ask about that: `placeproof derive mine.step`.",
    ),
    Code(
        code="PP201",
        title="unknown symbol",
        meaning="A value was given for a name that no formula uses.",
        kind="set",
        example="Q=3",
        remedy="`placeproof list symbols` shows all symbols.",
    ),
    Code(
        code="PP202",
        title="a value that a symbol cannot have",
        meaning="The setting is not NAME=VALUE, or the value lies outside the symbol's domain.",
        kind="set",
        example="N=0",
        remedy="Degrees and counts are whole numbers of at least 1; sizes and widths are positive.",
    ),
    Code(
        code="PP203",
        title="an unset symbol where a number was asked for",
        meaning="`--set` asks for numbers, and a formula that is to be a number still has an open symbol.",
        kind="unset",
        example="zero3 --set P=70e9",
        remedy="Set it too, or give the degree in the strategy: `zero3(8)`.",
    ),
    Code(
        code="PP204",
        title="unknown precision or list",
        meaning="The precision, or the kind of thing to list, does not exist.",
        kind="precision",
        example="fp17",
        remedy="`placeproof list precisions` shows all precisions.",
    ),
    Code(
        code="PP205",
        title="contradictory values",
        meaning="A part was set larger than the whole that it is a part of.",
        kind="set",
        example="P=1e9 U=2e9",
        remedy="A unit has at most as many parameters as the model.",
    ),
    Code(
        code="PP206",
        title="unknown assumption",
        meaning="`--without` names no assumption, or one that every statement here rests on.",
        kind="assumption",
        example="separable-los",
        remedy="`placeproof list assumptions` shows them, and which can be dropped.",
    ),
    Code(
        code="PP207",
        title="nothing to prove",
        meaning="`prove` takes one subject or `--catalogue`; a second opinion is that of cvc5, if installed, or the cut-off.",
        kind="command",
        example="prove --json",
        remedy="Give a strategy or a program; install `placeproof[cvc5]` for second opinions.",
    ),
    Code(
        code="PP208",
        title="unusable range",
        meaning="A range of `--for-all` names a degree (or `m`), a relation and a whole number; all of them can hold together.",
        kind="range",
        example="N >= 8 and N <= 4",
        remedy='Write `--for-all "N_dp >= 2"`, one option for each range.',
    ),
    Code(
        code="PP209",
        title="unreadable certificate",
        meaning="The file is not JSON, or not of the schema of certificates.",
        kind="certificate",
        example='{"schema": "placeproof.prove/1"}',
        remedy="Give a file that `placeproof prove SUBJECT --certificate FILE` has written.",
    ),
    Code(
        code="PP301",
        title="unreadable step program",
        meaning="The text is not in the subset of Python's syntax that step programs are written in, or too long.",
        kind="program",
        example="mesh(dp)\nx = = 1\n",
        remedy="See docs/reference/step-programs.md.",
    ),
    Code(
        code="PP302",
        title="header and body",
        meaning="A program has at least one statement, and its header lines come first.",
        kind="program",
        example="mesh(dp)\n",
        remedy="Write `mesh(...)`, placements and counts first, then the statements.",
    ),
    Code(
        code="PP303",
        title="not part of the language",
        meaning="The line is Python, but not one of the few forms that a step program has.",
        kind="program",
        example="mesh(dp)\nwhile x:\n    y = x\n",
        remedy="Programs have assignments, `+=`, operations, loops over parts of the model and `if rank(axis) == ...:`.",
    ),
    Code(
        code="PP304",
        title="an operation is called otherwise than the table says",
        meaning="The operation does not exist, or has other operands, axes, options or results.",
        kind="program",
        example="mesh(dp)\ng = all_reduce(gradients)\n",
        remedy="`placeproof list operations` shows how each is written.",
    ),
    Code(
        code="PP305",
        title="unknown axis, group or state",
        meaning="A name is not declared in the header, or is declared twice.",
        kind="program",
        example="mesh(dp)\nw = all_gather(parameters, tp)\n",
        remedy="Declare axes with `mesh(...)` and groups with `group(...)`.",
    ),
    Code(
        code="PP306",
        title="a name that cannot be read or written here",
        meaning="Nothing wrote what is read, or not on all devices that read it, it was freed, or the name belongs to the language.",
        kind="program",
        example="mesh(dp)\ng = all_reduce(grads, dp)\n",
        remedy="Assign before reading, on every path; free last.",
    ),
    Code(
        code="PP307",
        title="a loop or an index out of place",
        meaning="Loops nest from coarse to fine (microbatches, units, layers, blocks), and an index names a loop around it.",
        kind="program",
        example="mesh(dp)\nw = all_gather(parameters[u], dp)\n",
        remedy="Write the line inside `for u in units:`.",
    ),
    Code(
        code="PP308",
        title="devices would wait for one another for ever",
        meaning="Part of a group never enters a collective, a message has no other end, or a start has no wait.",
        kind="program",
        example="mesh(dp)\nif rank(dp) == 0:\n    g = all_reduce(gradients, dp)\n",
        remedy="Let every device of the group enter each collective; pair sends with receives and starts with waits.",
    ),
    Code(
        code="PP309",
        title="an operation gets a value of the wrong kind",
        meaning="An update needs parameters, optimizer state and gradients, in this order; a forward needs parameters.",
        kind="program",
        example="mesh(dp)\ng = backward(parameters)\nparameters, optimizer = update(parameters, g, optimizer)\n",
        remedy="Give the operands that the operation's signature names.",
    ),
    Code(
        code="PP310",
        title="costs that are not derived",
        meaning="A program that declares tensors is one block of a model: it can be proved; its memory and traffic are not derived. "
        "Nor is it derived how many devices take branches on an axis and on its sub-groups, unless their degrees are given; what a "
        "collective sends whose devices hold other widths or layouts; what it costs to read parts of a buffer together that lie in "
        "different ways; and what branches cost that make more than 256 kinds of devices.",
        kind="program",
        example="mesh(tp)\ntensor(x, tokens, hidden)\nreturns(x)\n",
        remedy="`placeproof prove FILE`; or what the message says.",
    ),
    Code(
        code="PP311",
        title="a linked program that cannot be read",
        meaning="A linked program defines blocks (`def swiglu():`, over tensors) and segments that call them, and lists the segments "
        "(`stack(before, layers * L, after)`), the sizes of dimensions (`size(hidden, h)`) and the kinds of weights (`weights(matrix, w)`) "
        "beside the step.",
        kind="program",
        example="mesh(dp)\nstack(layers * L)\nx = data()\n",
        remedy="Mend the line that the message shows; `placeproof derive ddp --model llama3-8b --program` prints one.",
    ),
    Code(
        code="PP401",
        title="theorems that cannot be found or read",
        meaning="A file of theorems is Python that can be run. A theorem is asked for by its id, topic, file or folder.",
        kind="theorem",
        example="from placeproof.theory import Proved, theorem\n\n@theorem(expect=Proved(), cite=\n",
        remedy="Mend the line that the message shows; `placeproof list theorems` shows the ids of our own.",
    ),
    Code(
        code="PP402",
        title="a parameter of a theorem has no domain",
        meaning="The annotation of each parameter says which values it takes.",
        kind="theorem",
        example="""from placeproof.theory import Proved, theorem

@theorem(expect=Proved(), cite="rajbhandari2020zero")
def positive(n: int):
    \"\"\"A count is positive.\"\"\"
    return n > 0
""",
        remedy="Annotate it with Real, Positive, NonNegative, Integer, Natural, Degree or Count.",
    ),
    Code(
        code="PP403",
        title="an incomplete theorem",
        meaning="A theorem says what is expected of it, and has a docstring that says it in words.",
        kind="theorem",
        example="""from placeproof.theory import Degree, theorem

@theorem(cite="rajbhandari2020zero")
def positive(n: Degree):
    \"\"\"A degree is positive.\"\"\"
    return n > 0
""",
        remedy="Add `expect=Proved()`, `expect=Refuted(...)` or `expect=Open(...)`, and a docstring.",
    ),
    Code(
        code="PP404",
        title="a theorem's source is unknown",
        meaning="A theorem cites entries of `references.bib` beside it, in `docs` beside its folder, or of our own bibliography.",
        kind="theorem",
        example="""from placeproof.theory import Degree, Proved, theorem

@theorem(expect=Proved(), cite="nobody")
def positive(n: Degree):
    \"\"\"A degree is positive.\"\"\"
    return n > 0
""",
        remedy="Cite a key that exists, or add the entry.",
    ),
    Code(
        code="PP405",
        title="a lock file that cannot be read",
        meaning="`verdicts.lock.json` is written by `placeproof check --update` and by nothing else.",
        kind="lock",
        example="{\n",
        remedy="Restore it from version control, or remove it and run `placeproof check --update`.",
    ),
    Code(
        code="PP406",
        title="a statement that cannot be understood",
        meaning="A theorem returns relations between its parameters, or what holds(), by_induction() or trains() give.",
        kind="theorem",
        example="""from placeproof.theory import Degree, Proved, theorem

@theorem(expect=Proved(), cite="rajbhandari2020zero")
def positive(n: Degree):
    \"\"\"A degree lies between 1 and its square.\"\"\"
    return 1 <= n <= n * n
""",
        remedy="State relations, not truth values; `chain('<=', 1, n, n * n)` states two of them.",
    ),
    Code(
        code="PP501",
        title="a configuration that cannot be read",
        meaning="A framework's configuration is JSON, YAML, TOML or arguments, whole, of a system that is known.",
        kind="config",
        example='{"zero_optimization": {"stage": 3}',
        remedy="Mend the file, or name the system: `--from deepspeed`.",
    ),
    Code(
        code="PP502",
        title="a setting that its system does not know",
        meaning="Every setting of a configuration is known to its system, and said once; what is misspelt would be passed over there.",
        kind="config",
        example='{"zero_optimization": {"stages": 3}}',
        remedy="Correct its name; the message says what is near.",
    ),
    Code(
        code="PP503",
        title="a setting with a value of another kind",
        meaning="Each setting is a number, a text, true or false, a list or a table.",
        kind="config",
        example='{"zero_optimization": {"stage": "three"}}',
        remedy="Write a value of the kind that the message names.",
    ),
    Code(
        code="PP504",
        title="settings that contradict one another",
        meaning="Batch sizes multiply, degrees divide the number of devices, and what excludes one another is not set together.",
        kind="config",
        example='{"fp16": {"enabled": true}, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
        remedy="Change one of the settings that the message names.",
    ),
    Code(
        code="PP505",
        title="an option that goes with a configuration",
        meaning="`--world` says on how many devices a configuration is launched, or what a strategy costs on so many; a proof is of every "
        "number of them, and a program says so itself. `--env` says what a launch script gets from outside, and the script has to read it.",
        kind="command",
        example="prove zero3 --world 64",
        remedy="Give the degree in the strategy: `zero3(64)`.",
    ),
    Code(
        code="PP506",
        title="a strategy that a system has no configuration for",
        meaning="No configuration of the system reads back as the strategy: the system does otherwise, or leaves it to the program.",
        kind="unset",
        example="zero_infinity(8) --as megatron",
        remedy="Take what the message says that the system can say, or another system.",
    ),
    Code(
        code="PP601",
        title="this cannot be run on real processes here",
        meaning="PyTorch is not installed, the system cannot fork, there are too many processes, or no such backend.",
        kind="command",
        example="replay counterexample.json --backend nccl",
        remedy='`pip install "placeproof[torch]"`; give a backend and a number of processes that the message names.',
    ),
    Code(
        code="PP602",
        title="no counterexample to replay",
        meaning="A replay needs the JSON of a program that was refuted, as `placeproof prove SUBJECT --json` prints it.",
        kind="command",
        example="replay nowhere.json --backend simulator",
        remedy="Save what `placeproof prove SUBJECT --json` prints, whole, and give the path of that file.",
    ),
    Code(
        code="PP603",
        title="a step that cannot be recorded",
        meaning="What a script does has no words in a step program, its ranks do not agree, or PyTorch is not there to run it.",
        kind="command",
        example="trace record train.py --backend nccl",
        remedy="Do as the message says, or write the step as a program by hand and prove that.",
    ),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
