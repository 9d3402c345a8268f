"""Methods that only torch tensors have: calling one shows what its receiver is."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..rulebook.signature import Mismatch, bind
from .caught import is_caught
from .shared_names import fits_weak, form_shows_tensor, is_weak

if TYPE_CHECKING:
    from ..rulebook.load import RuleBook
    from .unit import Unit

# The callables of torch.Tensor less the attributes of NumPy arrays and generators, builtin containers, files, paths,
# pandas objects, matplotlib axes, torch's modules, optimizers, distributions and loaders (tests/test_kinds.py). Some
# names stay although a file, a decimal number or a Size has them too, since torch code does not call them there.
TENSOR_ONLY = frozenset(
    """
    abs_ absolute_ acos acos_ acosh acosh_ add_ addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_ addmm addmm_
    addmv addmv_ addr addr_ adjoint allclose amax amin aminmax angle apply_ arccos arccos_ arccosh arccosh_
    arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argwhere as_strided
    as_strided_ as_strided_scatter as_subclass asin asin_ asinh asinh_ atan atan2 atan2_ atan_ atanh atanh_
    backward baddbmm baddbmm_ bernoulli bernoulli_ bincount bitwise_and bitwise_and_ bitwise_left_shift
    bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_
    bitwise_xor bitwise_xor_ bmm broadcast_to byte cauchy_ ccol_indices cdouble ceil_ cfloat chalf char cholesky
    cholesky_inverse cholesky_solve chunk clamp clamp_ clamp_max clamp_max_ clamp_min clamp_min_ clip_ clone
    coalesce col_indices conj_physical conj_physical_ const_data_ptr contiguous copy_ copysign copysign_
    corrcoef cos cos_ cosh cosh_ count_nonzero cross crow_indices cumprod_ cumsum_ data_ptr deg2rad deg2rad_
    dense_dim dequantize det detach detach_ diag diag_embed diagflat diagonal_scatter digamma digamma_ dim
    dim_order dist div_ divide_ dsplit element_size eq_ erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_
    expand expand_as expm1 expm1_ exponential_ fill_ fill_diagonal_ fix fix_ flip fliplr flipud float_power
    float_power_ floor_ floor_divide floor_divide_ fmax fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge_
    geometric_ geqrf ger greater greater_ greater_equal greater_equal_ gt_ hardshrink heaviside heaviside_ histc
    histogram hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ index_add index_add_ index_copy
    index_copy_ index_fill index_fill_ index_put index_put_ index_reduce index_reduce_ index_select inner
    int_repr inverse is_coalesced is_complex is_conj is_contiguous is_distributed is_floating_point is_inference
    is_neg is_nonzero is_pinned is_same_size is_set_to is_signed isclose isfinite isinf isnan isneginf isposinf
    isreal istft kron kthvalue lcm lcm_ ldexp ldexp_ le_ lerp lerp_ less less_ less_equal less_equal_ lgamma
    lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ log_normal_ log_softmax logaddexp logaddexp2
    logcumsumexp logdet logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor
    logical_xor_ logit logit_ logsumexp long lstsq lt_ lu lu_solve map2_ map_ masked_fill masked_fill_
    masked_scatter masked_scatter_ masked_select matmul matrix_exp matrix_power maximum minimum mm moveaxis
    movedim msort mul_ multiply_ mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean nanmedian nanquantile
    nansum narrow narrow_copy ndimension ne_ neg neg_ negative negative_ nelement new_empty new_empty_strided
    new_full new_ones new_tensor new_zeros nextafter nextafter_ nonzero_static norm normal_ not_equal not_equal_
    numel numpy orgqr ormqr outer permute pinverse polygamma polygamma_ positive pow_ prelu put_
    q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qr qscheme rad2deg
    rad2deg_ random_ reciprocal reciprocal_ record_stream register_hook register_post_accumulate_grad_hook relu
    relu_ remainder remainder_ renorm renorm_ repeat_interleave reshape_as resize_ resize_as resize_as_
    resize_as_sparse_ resolve_conj resolve_neg retain_grad roll rot90 round_ row_indices rsqrt rsqrt_ scatter_
    scatter_add scatter_add_ scatter_reduce scatter_reduce_ select_scatter set_ sgn sgn_ share_memory_ short
    sigmoid sigmoid_ sign_ signbit sin sin_ sinc sinc_ sinh sinh_ slice_inverse slice_scatter slogdet smm
    softmax sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ split_with_sizes sqrt sqrt_ square
    square_ squeeze_ sspaddmm stft storage_offset storage_type stride sub_ subtract_ sum_to_size svd swapaxes_
    swapdims swapdims_ t t_ take_along_dim tan tan_ tanh tanh_ tensor_split tile to_dense to_mkldnn
    to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr topk
    transpose_ triangular_solve tril tril_ triu triu_ true_divide true_divide_ trunc trunc_ type_as unbind
    unflatten unfold uniform_ unique_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze
    unsqueeze_ untyped_storage vdot view_as vsplit xlogy xlogy_ zero_
    """.split()  # noqa: SIM905
)

TYPES = frozenset(
    f"torch.{t}"
    for t in ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64", "bool")
)

# Attributes that nothing else has.
TENSOR_ATTRIBUTES = frozenset({"mH", "grad_fn", "is_leaf", "retains_grad"})

# Keywords by which torch's method differs from one of the same name elsewhere (NumPy says axis, keepdims, ddof).
TORCH_KEYWORDS = frozenset(
    {
        "dim",
        "dim0",
        "dim1",
        "dim2",
        "keepdim",
        "rounding_mode",
        "start_dim",
        "end_dim",
        "as_tuple",
        "unbiased",
        "descending",
    }
)

# Keywords of one method or a few, which no library's method of that name takes.
_KEYWORDS_OF: Mapping[str, frozenset[str]] = {
    "memory_format": frozenset({"bfloat16", "bool", "clone", "double", "float", "half", "int"}),
    "replacement": frozenset({"multinomial"}),
    "reduce": frozenset({"scatter"}),
    "some": frozenset({"svd"}),
    "upper": frozenset({"cholesky", "cholesky_solve"}),
    "dims": frozenset({"flip", "permute", "roll", "rot90"}),
}

# Where torch takes a string, and no method of that name elsewhere does.
_TAKE_STRINGS = frozenset({"scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "norm"})


def shows_tensor(node: ast.Call, unit: Unit) -> str:
    """Why a call `value.name(…)` shows that `value` is a tensor, or "": only tensors have the method, and the arguments
    fit torch's signature (`xp.matmul(a, b)` calls a function of a module); a keyword that only torch has; the form of
    the call (shared_names.py). Nothing when other types have the method too: see `may_show_tensor`."""
    if not isinstance(node.func, ast.Attribute):
        return ""
    name = node.func.attr
    used = not isinstance(unit.tree.parents.get(node), ast.Expr)
    only = name in TENSOR_ONLY and not is_weak(node, unit.around)
    why = f"`.{name}` is called on it" if only or any(_is_torch(k, name, unit) for k in node.keywords) else ""
    why = why or _given_a_type(node, unit) or form_shows_tensor(node, used, unit.around)
    why = why or _gives_a_pair(node, unit) or _gives_sizes(node, unit)
    return why if why and _fits(node, name, unit.book) and not is_caught(node, unit) else ""


def may_show_tensor(node: ast.Call, unit: Unit) -> bool:
    """Whether `value.name(…)` fits a tensor and others: with one more evidence it shows that `value` is a tensor."""
    if (
        not isinstance(node.func, ast.Attribute)
        or not is_weak(node, unit.around)
        or node.func.attr in unit.around.methods
    ):
        return False
    used = not isinstance(unit.tree.parents.get(node), ast.Expr)
    return used and fits_weak(node) and _fits(node, node.func.attr, unit.book) and not is_caught(node, unit)


_PAIRS = frozenset({"max", "min", "median", "mode", "sort", "cummax", "cummin"})


def _gives_a_pair(node: ast.Call, unit: Unit) -> str:
    """Whether `.values` or `.indices` of the result is read: NumPy's reductions give arrays, which have neither."""
    assert isinstance(node.func, ast.Attribute)
    name, up = node.func.attr, unit.tree.parents.get(node)
    if name not in _PAIRS or unit.around.arrays or unit.around.owned is None or name in unit.around.methods:
        return ""
    read = isinstance(up, ast.Attribute) and up.attr in ("values", "indices") and isinstance(up.ctx, ast.Load)
    outer = unit.tree.parents.get(up) if up is not None else None
    called = isinstance(outer, ast.Call) and outer.func is up
    return f"`.{up.attr}` of `.{name}()` is read" if read and not called and isinstance(up, ast.Attribute) else ""


def _gives_sizes(node: ast.Call, unit: Unit) -> str:
    """Whether `b, c = x.size()` takes several numbers: the size of an array, a table or an image is no method, that of
    a graph one number."""
    assert isinstance(node.func, ast.Attribute)
    bare = node.func.attr == "size" and not node.args and not node.keywords and "size" not in unit.around.methods
    return "several numbers are taken from its `.size()`" if bare and unpacked(node, unit) > 1 else ""


def unpacked(node: ast.expr, unit: Unit) -> int:
    """How many names the value of an expression is unpacked into: 2 for `a, b = value`, 0 where it is one value."""
    up = unit.tree.parents.get(node)
    targets = up.targets if isinstance(up, ast.Assign) and up.value is node else []
    return max((len(t.elts) for t in targets if isinstance(t, (ast.Tuple, ast.List))), default=0)


def _given_a_type(node: ast.Call, unit: Unit) -> str:
    """Whether the call passes a type of torch: only tensors take one, and modules in `to` and `type`."""
    assert isinstance(node.func, ast.Attribute)
    given = [*node.args, *(k.value for k in node.keywords)]
    if node.func.attr in ("to", "type") or not any((unit.resolve(a) or "") in TYPES for a in given):
        return ""
    return f"`.{node.func.attr}()` is given a type of torch"


def _fits(node: ast.Call, name: str, book: RuleBook) -> bool:
    """Whether the arguments fit the signature of torch's method."""
    assert isinstance(node.func, ast.Attribute)
    row = book.find(f"torch.Tensor.{name}")
    if row is None or row.signature is None:
        return name in TENSOR_ONLY and (name.endswith("_") or (row is not None and bool(row.get("unmapped"))))
    bound = bind(row.signature, node, node.func.value)
    if not node.args and not node.keywords and any(p.kind == "varargs" for p in row.signature.params):
        return False  # `node.expand()`: torch wants sizes
    if name not in _TAKE_STRINGS and any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in node.args):
        return False  # `match.expand("…")`
    return not isinstance(bound, Mismatch) or bound.reason == "star"


def _is_torch(keyword: ast.keyword, method: str, unit: Unit) -> bool:
    """A keyword of torch; names of dimensions (`dim="time"`) are those of other libraries, of xarray any `dim`."""
    if keyword.arg in TORCH_KEYWORDS:
        named = isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str)
        return not (keyword.arg == "dim" and (named or unit.around.named_axes))
    return method in _KEYWORDS_OF.get(keyword.arg or "", ())
