"""The layout of weights in memory for decoding, where a step multiplies a few vectors by every matrix.

Parameters keep their names, shapes and values. Moving, casting or copying the model undoes what is packed here. A
parameter may be replaced, or changed in place, but not through its `.data`, which torch does not count as a change.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.models.model import Model, VocabularyHead
from regard.parts.heads import PROJECTIONS, MultiHeads
from regard.parts.linear import Linear, Source, linear, sources_of
from regard.parts.onednn import is_onednn_faster

LEAST_PACKED = 2**18  # numbers of a matrix from which packing it pays
WIDE = 2  # outputs for each input from which the threads share a product of a single row
USES = 3  # the product of several rows for which it is packed: a single pass is over before that pays
USES_BY_ONEDNN = 32  # the same where oneDNN is faster: it also multiplies by the matrix itself, so packing pays later


@torch.no_grad()
def lay_out(model: Model) -> None:
    """Lay the matrices of a model out for decode steps.

    Queries, keys and values are computed by one product. On the CPU large matrices are packed after some products;
    those not packed for every number of rows are stored by columns, since multiplying a few dozen rows by a matrix
    stored by rows takes up to twice as long there. On CUDA the vocabulary is rounded up.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    joined: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, MultiHeads):
            pack_heads(module, on_cpu)
            joined |= {module.to_query, module.to_key, module.to_value}
    found = model.vocabulary_head()
    if on_cpu:
        for module in model.modules():
            if isinstance(module, nn.Linear) and module not in joined:
                module.weight.data = arranged(module.weight.data)
                if isinstance(module, Linear):
                    use_packed(module)
        if found is not None:
            matrix = found.head.matrix(found.table)
            matrix.data = arranged(matrix.data)
            found.head.use_product(PackedProduct(matrix, found.head.bias, (matrix,)), head_sources(model, found))
    elif found is not None:
        widen_head(model, found, multiple=64)


def pack_heads(heads: MultiHeads, on_cpu: bool) -> None:
    """Make W_Q, W_K and W_V slices of one matrix, so that one product computes all three."""
    weight, bias = joined_weights(heads)
    weight = arranged(weight) if on_cpu else weight
    begin = 0
    for each in (heads.to_query, heads.to_key, heads.to_value):
        end = begin + each.out_features
        each.weight.data = weight[begin:end]
        if bias is not None:
            each.bias.data = bias[begin:end]
        begin = end
    parts = (heads.to_query, heads.to_key, heads.to_value)
    sources = [Source(heads._modules, name, part) for name, part in zip(PROJECTIONS, parts, strict=True)]
    for part in parts:
        sources += sources_of(part)
    heads.use_product(PackedProduct(weight, bias, tuple(each.weight for each in parts)), sources)
    if on_cpu:  # in cross-attention, a step computes the queries only
        use_packed(heads.to_query)


def use_packed(layer: Linear) -> None:
    """Make a layer compute its product from a packed matrix, where that is faster."""
    layer.use_product(PackedProduct(layer.weight, layer.bias, (layer.weight,)), sources_of(layer))


def head_sources(model: Model, found: VocabularyHead) -> list[Source]:
    """Return what the scores of the vocabulary are computed from; the matrix may belong to another module."""
    matrix = found.head.matrix(found.table)
    registered = (source for module in model.modules() for source in sources_of(module))
    return [*sources_of(found.head), *(source for source in registered if source.value is matrix)]


class PackedProduct:
    """x -> Wx + b in the form that suits the number of rows and threads.

    After some products of several rows, it is computed from a copy of W that is packed for oneDNN, which takes up to
    half the time: blocks of W are read in the order in which they are needed. So is a single row on a processor where
    oneDNN is faster (parts/onednn.py). Elsewhere it uses W itself, which is stored by columns. MKL and OpenBLAS read it
    in one thread, so with several threads its columns are shared among them, or it is packed after all if it has few of
    them. Small matrices, gradients and compiled code use W itself. If one of the `owners` of W is changed, it is packed
    again.
    """

    def __init__(
        self, weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None, owners: tuple[Tensor, ...]
    ) -> None:
        self.weight, self.bias, self.owners = weight, bias, owners
        self.uses = 0
        self.packed: Tensor | None = None
        self.state: list[tuple[int, int]] = []  # of the owners when W was packed
        self.is_large = is_large(weight)
        self.suits = can_pack(weight) and not any(each.is_inference() for each in owners)
        self.suits_single_rows = self.suits and is_onednn_faster()
        self.least_uses = USES_BY_ONEDNN if is_onednn_faster() else USES

    def __call__(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows O"]:
        """Return Wx + b."""
        if not self.is_large or torch.compiler.is_compiling():
            return linear(x, self.weight, self.bias)
        if x.numel() == x.shape[-1] and not self.suits_single_rows:
            threads = torch.get_num_threads()
            if threads == 1:
                return F.linear(x, self.weight, self.bias)
            if len(self.weight) >= x.shape[-1] * WIDE or not self.suits:
                return shared_product(x, self.weight, self.bias, threads)
        if not self.suits or torch.is_grad_enabled() or x.dtype != self.weight.dtype:
            return linear(x, self.weight, self.bias)
        self.uses += 1
        if self.uses < self.least_uses:
            return linear(x, self.weight, self.bias)
        state = [(each.data_ptr(), each._version) for each in self.owners]
        if self.packed is None or state != self.state:
            self.packed, self.state = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach()), state
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return found


def shared_product(
    x: Float[Tensor, "*one D"], weight: Float[Tensor, "O D"], bias: Float[Tensor, "O"] | None, threads: int
) -> Float[Tensor, "*one O"]:
    """Return Wx + b for a single vector and a W stored by columns; each thread computes a share of the outputs.

    The numbers are those of one product, to the bit: an output is the same sum in the same order.
    """
    outputs, dim = weight.shape
    each, rest = divmod(outputs, threads)
    parts = weight.t()[:, : outputs - rest].unflatten(1, (threads, each)).transpose(0, 1)
    found = torch.bmm(x.reshape(1, 1, dim).expand(threads, 1, dim), parts).view(*x.shape[:-1], outputs - rest)
    if rest:
        found = torch.cat((found, F.linear(x, weight[outputs - rest :])), -1)
    return found if bias is None else found.add_(bias)


def joined_weights(heads: MultiHeads) -> tuple[Float[Tensor, "O D"], Float[Tensor, "O"] | None]:
    """Return W_Q, W_K and W_V as one matrix, and their biases as one vector."""
    projections = (heads.to_query, heads.to_key, heads.to_value)
    bias = None if heads.to_query.bias is None else join([each.bias.detach() for each in projections])
    return join([each.weight.detach() for each in projections]), bias


def join(parts: Sequence[Float[Tensor, "_O *rest"]]) -> Float[Tensor, "O *rest"]:
    """Concatenate tensors; without a copy if each follows the one before it in memory, as in the files of GPT-2."""
    first, length = parts[0], sum(map(len, parts))
    step = first.stride(0) * first.itemsize
    neighbours = all(
        each.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        and each.stride() == first.stride()
        and each.data_ptr() == before.data_ptr() + len(before) * step
        for before, each in pairwise(parts)
    )
    return first.as_strided((length, *first.shape[1:]), first.stride()) if neighbours else torch.cat(list(parts))


def widen_head(model: Model, found: VocabularyHead, multiple: int) -> None:
    """Make W_u a slice of a matrix whose number of rows is a multiple, which a GPU multiplies several times as fast."""
    weight, bias = found.head.matrix(found.table), found.head.bias
    wide = F.pad(weight.detach(), (0, 0, 0, -len(weight) % multiple))
    weight.data = wide[: len(weight)]
    found.head.use_product(partial(_first_rows, wide, bias, len(weight)), head_sources(model, found))


def _first_rows(
    weight: Float[Tensor, "_wide D"], bias: Float[Tensor, "V"] | None, rows: int, x: Float[Tensor, "*rows D"]
) -> Float[Tensor, "*rows V"]:
    """Return Wx + b for the first `rows` of W."""
    found = F.linear(x, weight)[..., :rows]
    return found if bias is None else found + bias


def arranged(matrix: Float[Tensor, "O D"]) -> Float[Tensor, "O D"]:
    """Return the same matrix, stored by columns; as it is if a packed copy will serve every number of rows."""
    return matrix if can_pack(matrix) and is_onednn_faster() else stored_by_columns(matrix)


def stored_by_columns(matrix: Float[Tensor, "O D"]) -> Float[Tensor, "O D"]:
    """Return the same matrix, stored column after column."""
    return matrix.t().contiguous().t()


def is_large(matrix: Float[Tensor, "O D"]) -> bool:
    """Return whether other forms of a matrix than its own may be faster."""
    return matrix.numel() >= LEAST_PACKED and matrix.dtype == torch.float32


def can_pack(matrix: Float[Tensor, "O D"]) -> bool:
    """Return whether a matrix can be packed for oneDNN, and that pays; changes of an inference tensor are not seen."""
    return is_large(matrix) and torch.backends.mkldnn.is_available() and not matrix.is_inference()
