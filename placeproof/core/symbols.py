"""Every symbol of a cost formula, defined once: name, LaTeX, domain, dimension, meaning.

Symbols carry no SymPy assumptions: SymPy would silently evaluate hypotheses away. A symbol's domain is an explicit
hypothesis (:attr:`SymbolInfo.domain`) wherever a statement about it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from placeproof.core.spelling import read_as, respelled

if TYPE_CHECKING:
    import sympy


class Domain(Enum):
    """The values that a symbol may take."""

    POSITIVE = "> 0"
    NONNEGATIVE = ">= 0"
    COUNT = "integer >= 1"

    @property
    def lower(self) -> int:
        """The least admissible value (not attained for POSITIVE)."""
        return 1 if self is Domain.COUNT else 0


#: A dimension is a product of base units: ``{"byte": 1, "parameter": -1}`` is bytes per parameter.
Dimension = Mapping[str, int]

PURE: Dimension = {}
BYTES: Dimension = {"byte": 1}
_PARAMETERS: Dimension = {"parameter": 1}
_PER_PARAMETER: Dimension = {"byte": 1, "parameter": -1}
_ELEMENTS: Dimension = {"element": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolInfo:
    """One symbol. ``default`` is the number used where numbers are asked for and nothing else is said; ``example`` a usual one."""

    name: str
    latex: str
    domain: Domain
    dimension: Dimension
    meaning: str
    default: str | None = None
    at_most: str | None = None
    example: str | None = None


_ROWS = (
    SymbolInfo(name="P", latex="P", domain=Domain.POSITIVE, dimension=_PARAMETERS, meaning="parameters (count)", example="70e9"),
    SymbolInfo(
        name="P_norm",
        latex="P_{\\mathrm{norm}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters of norms and biases, which tensor parallelism replicates and Muon updates element by element (counted in P; 0 "
        "unless asked for)",
        default="0",
        at_most="P",
    ),
    SymbolInfo(
        name="P_tied",
        latex="P_{\\mathrm{tied}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters that the first and the last stage of a pipeline share, as a tied table of embeddings (counted in P)",
        at_most="P",
        example="1e9",
    ),
    SymbolInfo(
        name="P_copies",
        latex="P_{\\mathrm{copies}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="other parameters of a model that tensor parallelism replicates, where a step counts each once (counted in P)",
        at_most="P",
        example="1e6",
    ),
    SymbolInfo(
        name="P_expert_copies",
        latex="P_{\\mathrm{expert\\,copies}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters of experts that tensor parallelism replicates, where a step counts each once (counted in P)",
        at_most="P",
        example="1e6",
    ),
    SymbolInfo(
        name="P_expert",
        latex="P_{\\mathrm{expert}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters of experts, which expert parallelism splits (counted in P)",
        at_most="P",
        example="1e9",
    ),
    SymbolInfo(
        name="P_adapter",
        latex="P_{\\mathrm{adapter}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters of adapters, which are trained while all others are frozen (counted in P)",
        at_most="P",
        example="1e8",
    ),
    SymbolInfo(
        name="P_adapter_sums",
        latex="P_{\\mathrm{adapter,sums}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="other adapters of a model, which tensor parallelism replicates while it splits what they compute with (counted in P)",
        at_most="P",
        example="1e7",
    ),
    SymbolInfo(
        name="P_frozen",
        latex="P_{\\mathrm{frozen}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters that are not trained, where others of the model are (counted in P)",
        at_most="P",
        example="1e9",
    ),
    SymbolInfo(
        name="P_elementwise",
        latex="P_{\\mathrm{elementwise}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="parameters of a model that are no matrices to an update of whole matrices: gains and biases that are not in P_norm or "
        "P_copies, and to Muon tables and heads (counted in P)",
        at_most="P",
        example="1e9",
    ),
    SymbolInfo(
        name="P_matrix_copies",
        latex="P_{\\mathrm{matrix,copies}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="matrices of a model that tensor parallelism replicates, and an update reads whole (counted in P)",
        at_most="P",
        example="1e6",
    ),
    SymbolInfo(
        name="P_matrix_sums",
        latex="P_{\\mathrm{matrix,sums}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PARAMETERS,
        meaning="those of them of which each device of tensor parallelism finds a part of the gradient (counted in P)",
        at_most="P",
        example="1e6",
    ),
    SymbolInfo(
        name="U",
        latex="U",
        domain=Domain.POSITIVE,
        dimension=_PARAMETERS,
        meaning="parameters in the largest unit: what is gathered at once",
        at_most="P",
        example="1e9",
    ),
    SymbolInfo(
        name="U_root",
        latex="U_{\\mathrm{root}}",
        domain=Domain.POSITIVE,
        dimension=_PARAMETERS,
        meaning="parameters of the root unit: what no other unit wraps",
        at_most="P",
    ),
    SymbolInfo(name="n_u", latex="n_u", domain=Domain.COUNT, dimension=PURE, meaning="number of units, taken as equal in size"),
    SymbolInfo(
        name="N",
        latex="N",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="devices: the degree of the only axis, or the world size",
    ),
    SymbolInfo(
        name="b_theta",
        latex="b_\\theta",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter of the compute copy",
    ),
    SymbolInfo(
        name="b_frozen",
        latex="b_{\\mathrm{frozen}}",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter that is frozen, its scales included",
    ),
    SymbolInfo(name="b_g", latex="b_g", domain=Domain.POSITIVE, dimension=_PER_PARAMETER, meaning="bytes per parameter of the gradient"),
    SymbolInfo(
        name="b_omega",
        latex="b_\\omega",
        domain=Domain.NONNEGATIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter of optimizer state, fp32 master copy included",
    ),
    SymbolInfo(
        name="b_a",
        latex="b_a",
        domain=Domain.POSITIVE,
        dimension={"byte": 1, "element": -1},
        meaning="bytes per activation element",
    ),
    SymbolInfo(
        name="b_qw",
        latex="b_{qw}",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter of quantised weights on the wire",
        default="1",
    ),
    SymbolInfo(
        name="b_qg",
        latex="b_{qg}",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter of quantised gradients on the wire",
        default="1/2",
    ),
    SymbolInfo(
        name="b_s",
        latex="b_s",
        domain=Domain.POSITIVE,
        dimension=BYTES,
        meaning="bytes of one scalar: a norm, a token count, a flag",
        default="4",
    ),
    SymbolInfo(
        name="b_master",
        latex="b_{\\mathrm{master}}",
        domain=Domain.NONNEGATIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes per parameter of what Adafactor keeps of each beside its second moment: a full-precision copy of the weights, and a "
        "first moment where it has one",
    ),
    SymbolInfo(
        name="b_nu",
        latex="b_{\\nu}",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes of an element of Adafactor's second moment: of a row or a column of a matrix, of each element of what is none",
        default="4",
    ),
    SymbolInfo(
        name="rho",
        latex="\\rho",
        domain=Domain.POSITIVE,
        dimension=PURE,
        meaning="rows and columns of matrices, for each of their elements: (n + m) / (n m) of one with n rows and m columns",
        example="1/2048",
    ),
    SymbolInfo(
        name="tau",
        latex="\\tau",
        domain=Domain.POSITIVE,
        dimension={"parameter": -1},
        meaning="tensors whose norms an update reads, for each of their elements: 1/(n m) of a matrix with n rows and m columns",
        example="1/16777216",
    ),
    SymbolInfo(
        name="sigma",
        latex="\\sigma",
        domain=Domain.POSITIVE,
        dimension=PURE,
        meaning="elements of Shampoo's preconditioners for each parameter, on average: n/m + m/n of blocks with n rows and m columns, n of "
        "blocks of n elements of a gain or a bias",
        default="2",
    ),
    SymbolInfo(
        name="b_pre",
        latex="b_{\\mathrm{pre}}",
        domain=Domain.POSITIVE,
        dimension=_PER_PARAMETER,
        meaning="bytes of an element of Shampoo's preconditioners, with that of its inverse root",
        default="8",
    ),
    SymbolInfo(
        name="d_pre",
        latex="d_{\\mathrm{pre}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="rows, and columns, of the blocks into which Shampoo cuts matrices, at most, and elements of those of gains and biases",
        default="1024",
    ),
    SymbolInfo(
        name="n_root",
        latex="n_{\\mathrm{root}}",
        domain=Domain.POSITIVE,
        dimension=PURE,
        meaning="products of two matrices that an inverse root of a preconditioner takes, by its operations",
        example="25",
    ),
    SymbolInfo(
        name="T_root",
        latex="T_{\\mathrm{root}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="steps from one inverse root of Shampoo's preconditioners to the next",
        example="100",
    ),
    SymbolInfo(
        name="m",
        latex="m",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="micro-batches: forward and backward passes per update on one device",
        example="8",
    ),
    SymbolInfo(
        name="A",
        latex="A",
        domain=Domain.POSITIVE,
        dimension=_ELEMENTS,
        meaning="activation elements that the whole model keeps for one device's local batch",
        example="1e9",
    ),
    SymbolInfo(
        name="A_seq",
        latex="A_{\\mathrm{seq}}",
        domain=Domain.POSITIVE,
        dimension=_ELEMENTS,
        meaning="the part of A outside tensor-parallel regions: norms, residual stream, dropout",
        at_most="A",
    ),
    SymbolInfo(
        name="A_expert",
        latex="A_{\\mathrm{expert}}",
        domain=Domain.NONNEGATIVE,
        dimension=_ELEMENTS,
        meaning="the part of A that experts keep, beside tensor parallelism",
        at_most="A",
    ),
    SymbolInfo(name="L", latex="L", domain=Domain.COUNT, dimension=PURE, meaning="transformer layers", example="32"),
    SymbolInfo(name="h", latex="h", domain=Domain.COUNT, dimension={"element": 1, "token": -1}, meaning="hidden size", example="4096"),
    SymbolInfo(
        name="s",
        latex="s",
        domain=Domain.COUNT,
        dimension={"token": 1, "sequence": -1},
        meaning="sequence length, in tokens",
        example="4096",
    ),
    SymbolInfo(
        name="b",
        latex="b",
        domain=Domain.COUNT,
        dimension={"sequence": 1},
        meaning="micro-batch size: sequences per forward pass on one device",
        example="1",
    ),
    SymbolInfo(name="a", latex="a", domain=Domain.COUNT, dimension=PURE, meaning="attention heads", example="32"),
    SymbolInfo(name="V", latex="V", domain=Domain.COUNT, dimension=PURE, meaning="vocabulary size", example="32000"),
    SymbolInfo(
        name="a_kv",
        latex="a_{kv}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="heads of keys and values, each shared by as many attention heads",
        at_most="a",
        example="8",
    ),
    SymbolInfo(name="d", latex="d", domain=Domain.COUNT, dimension=PURE, meaning="width of an attention head", example="128"),
    SymbolInfo(name="f", latex="f", domain=Domain.COUNT, dimension=PURE, meaning="inner width of the feed-forward block", example="14336"),
    SymbolInfo(
        name="n_pos",
        latex="n_{\\mathrm{pos}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="rows of the table of learned positions",
        example="4096",
    ),
    SymbolInfo(name="E", latex="E", domain=Domain.COUNT, dimension=PURE, meaning="experts that a layer chooses from", example="8"),
    SymbolInfo(
        name="k", latex="k", domain=Domain.COUNT, dimension=PURE, meaning="experts that a token is sent to", at_most="E", example="2"
    ),
    SymbolInfo(name="f_e", latex="f_e", domain=Domain.COUNT, dimension=PURE, meaning="inner width of one expert", example="14336"),
    SymbolInfo(
        name="f_s",
        latex="f_s",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="inner width of the experts that every token passes, together",
    ),
    SymbolInfo(
        name="L_dense",
        latex="L_{\\mathrm{dense}}",
        domain=Domain.NONNEGATIVE,
        dimension=PURE,
        meaning="first layers, without experts, of a model whose other layers have some",
        at_most="L",
    ),
    SymbolInfo(
        name="L_trained",
        latex="L_{\\mathrm{trained}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="last layers, which are trained while those before them are frozen",
        at_most="L",
    ),
    SymbolInfo(
        name="c",
        latex="c",
        domain=Domain.POSITIVE,
        dimension=PURE,
        meaning="tokens that a device's experts get, over the mean of all devices (1: they are spread evenly)",
        default="1",
    ),
    SymbolInfo(
        name="n_ns",
        latex="n_{\\mathrm{NS}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="Newton-Schulz iterations with which an update makes the direction of a matrix",
        default="5",
    ),
    SymbolInfo(name="r", latex="r", domain=Domain.COUNT, dimension=PURE, meaning="rank of adapters: their inner width", example="16"),
    SymbolInfo(name="r_q", latex="r_q", domain=Domain.COUNT, dimension=PURE, meaning="width of compressed queries"),
    SymbolInfo(name="r_kv", latex="r_{kv}", domain=Domain.COUNT, dimension=PURE, meaning="width of compressed keys and values"),
    SymbolInfo(
        name="d_nope",
        latex="d_{\\mathrm{nope}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="width of the part of a head that says no position",
    ),
    SymbolInfo(
        name="d_rope",
        latex="d_{\\mathrm{rope}}",
        domain=Domain.COUNT,
        dimension=PURE,
        meaning="width of the part of a head that says a position",
    ),
    SymbolInfo(name="d_v", latex="d_v", domain=Domain.COUNT, dimension=PURE, meaning="width of a head's values"),
    SymbolInfo(
        name="F_peak",
        latex="F_{\\mathrm{peak}}",
        domain=Domain.POSITIVE,
        dimension={"operation": 1, "second": -1},
        meaning="floating-point operations a second that a device can do at most",
    ),
    SymbolInfo(
        name="eta",
        latex="\\eta",
        domain=Domain.POSITIVE,
        dimension=PURE,
        meaning="efficiency: the share of F_peak that products of matrices reach while a device computes",
        default="1/2",
    ),
    SymbolInfo(
        name="F_fp8",
        latex="F_{\\mathrm{fp8}}",
        domain=Domain.POSITIVE,
        dimension={"operation": 1, "second": -1},
        meaning="floating-point operations a second that products of matrices in fp8 reach",
    ),
    SymbolInfo(
        name="B_mem",
        latex="B_{\\mathrm{mem}}",
        domain=Domain.POSITIVE,
        dimension={"byte": 1, "second": -1},
        meaning="bytes a second that a device reads from its memory or writes to it",
    ),
    SymbolInfo(
        name="t_k",
        latex="t_k",
        domain=Domain.NONNEGATIVE,
        dimension={"second": 1},
        meaning="seconds that a kernel takes besides what it moves, and a host to launch one",
    ),
)

SYMBOLS: dict[str, SymbolInfo] = {row.name: row for row in _ROWS}

#: What links are like along an axis: the symbol's name before the axis -> LaTeX, dimension, meaning.
_LINKS: dict[str, tuple[str, Dimension, str]] = {
    "alpha": ("\\alpha", {"second": 1}, "seconds a message takes, however short, over the links along"),
    "beta": ("\\beta", {"second": 1, "byte": -1}, "seconds a byte takes over the links along"),
}


def info(name: str) -> SymbolInfo:
    """The definition of a symbol; ``N_<axis>`` is the degree of that axis.

    ``alpha_<axis>`` and ``beta_<axis>`` say what its links are like. Raises KeyError for any other name.
    """
    if name in SYMBOLS:
        return SYMBOLS[name]
    if name.startswith("N_") and len(name) > 2:
        axis = name[2:]
        label = axis.replace("_", "\\_")
        return SymbolInfo(
            name=name,
            latex=f"N_{{\\mathrm{{{label}}}}}",
            domain=Domain.COUNT,
            dimension=PURE,
            meaning=f"degree of axis {axis}",
        )
    kind, _, axis = name.partition("_")
    if axis and kind in _LINKS:
        latex, dimension, meaning = _LINKS[kind]
        label = axis.replace("_", "\\_")
        whole = f"{latex}_{{\\mathrm{{{label}}}}}"
        return SymbolInfo(name=name, latex=whole, domain=Domain.NONNEGATIVE, dimension=dimension, meaning=f"{meaning} axis {axis}")
    raise KeyError(name)


@lru_cache(maxsize=256)
def symbol(name: str) -> sympy.Symbol:
    """The SymPy symbol of a defined name, without assumptions."""
    import sympy

    info(name)
    return sympy.Symbol(name)


#: Other words for symbols, as programs and papers have them. A word that may be several of them is not here: `batch` is of a step, too.
WORDS: dict[str, str] = {
    word: name
    for name, words in {
        "P": "params parameters num_parameters",
        "N": "gpus devices world world_size",
        "b": "mbs micro_batch micro_batch_size per_device_train_batch_size",
        "m": "microbatches micro_batches num_microbatches gas gradient_accumulation_steps",
        "s": "seq seq_len seq_length seqlen sequence sequence_length context context_length",
        "L": "layers num_layers num_hidden_layers",
        "h": "hidden hidden_size d_model",
        "a": "heads num_heads num_attention_heads",
        "V": "vocab vocab_size vocabulary",
        "f": "ffn ffn_hidden_size intermediate_size",
        "E": "experts num_experts",
    }.items()
    for word in words.split()
}


def named(written: str) -> str:
    """The symbol that is meant by a name of several letters; what is no other word for one stays."""
    if len(written) < 2 or _known(written):
        return written
    if capitals := [name for name in SYMBOLS if len(name) > 1 and name.lower() == written.lower()]:
        return read_as(written, capitals[0]) if len(capitals) == 1 else written
    return respelled(written, (), WORDS) or written


def _known(name: str) -> bool:
    try:
        info(name)
    except KeyError:
        return False
    return True
