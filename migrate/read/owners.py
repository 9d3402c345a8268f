"""Which libraries have types that share method names with tensors, and which names (taken.py asks).

Found by looking through every class of the libraries (tests/test_taken.py does so again for those installed). Methods
that NumPy's arrays or Python's builtin types have are not listed: nothing is concluded from them anyway.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

_DECIMAL = "exp log10 sqrt logical_and logical_or logical_xor abs divide multiply remainder subtract add"

# The standard library. A file object (`detach`) and a pattern's match (`expand`) come without an import, too, and are
# rejected by what those two names become.
_STANDARD: Mapping[str, str] = {
    "decimal": _DECIMAL,
    "fractions": _DECIMAL,
    "statistics": _DECIMAL,
    "collections": "subtract",
    "curses": "gather resize",
    "distutils": "log sub",
    "email": "clone flatten",
    "ftplib": "size",
    "io": "detach",
    "lib2to3": "clone",
    "logging": "log",
    "mailbox": "add",
    "mmap": "resize size",
    "multiprocessing": "detach",
    "pathlib": "absolute",
    "pstats": "add",
    "pipes": "clone",
    "re": "sub expand",
    "socket": "detach",
    "ssl": "detach",
    "tarfile": "add detach",
    "tempfile": "detach",
    "tkinter": "size unbind type",
    "turtle": "backward clone dot lt size mode",
    "weakref": "detach",
}
_EVERYTHING = frozenset({"unittest", "ctypes", "xmlrpc"})  # their objects answer to any name

_LIBRARIES: Mapping[str, str] = {
    "absl": "log",
    "beartype": "permute",
    "click": "detach",
    "cv2": "add clone expand size",
    "datasets": "add",
    "evaluate": "add angle",
    "huggingface_hub": "log mode size",
    "hydra": "double log mode",
    "joblib": "detach",
    "loguru": "add log",
    "matplotlib": "add ge inverse le scatter size sqrt unbind",
    "ml_collections": "bool float int",
    "networkx": "expand sign size",
    "nltk": "add clone detach expand lu multiply negative norm size sub subtract unbind",
    "omegaconf": "add clone mode",
    "pandas": """
        abs add ceil cov cummax cummin detach diff div divide eq floor ge gt le lt median mode mul multiply ne
        pow quantile scatter size sub subtract where
    """,
    "PIL": "add detach histogram",
    "polars": """
        abs add arccos arccosh arcsin arcsinh arctan arctanh ceil clone cos cosh diff eq exp floor ge gt le
        log log10 log1p lt median mode mul ne neg pow quantile scatter sign sin sinh size sqrt sub tan tanh
        where
    """,
    "pydantic": "absolute add eq exp ge gt le log10 logical_and logical_or logical_xor lt sqrt",
    "regex": "expand sub",
    "rich": "add detach divide expand log",
    "scipy": """
        add adjoint arcsin arcsinh arctan arctanh ceil count_nonzero deg2rad detach divide expm1 floor log1p
        maximum minimum multiply rad2deg sign sin sinh size sqrt subtract tan tanh trunc
    """,
    "seaborn": "add",
    "skimage": "size",
    "sklearn": "add adjoint diag divide inverse multiply subtract",
    "sympy": """
        abs add adjoint angle arccos arcsin arctan ceil cholesky cholesky_solve clone cos cosh cross det diag
        diff div double eq exp expand flip floor gcd gt inverse lcm log lt lu lu_solve matmul mul multiply ne
        neg norm outer permute pow qr rot90 sin sinh sqrt square sub tan tanh trunc
    """,
    "tensorboard": "log",
    "typer": "detach",
    "wandb": "abs add diff eq gt histogram log lt mode ne size where",
    "xarray": "absolute add ceil chunk cov diff floor median quantile roll scatter where",
    "yacs": "clone",
}
_NONE = frozenset(
    """
    __future__ attr colorama easydict einops fire gin gymnasium h5py imageio jaxtyping numpy psutil pytest requests
    safetensors sentencepiece setuptools soundfile tensorboardX termcolor tokenizers torch torchvision tqdm
    typing_extensions yaml
    """.split()  # noqa: SIM905
)

# Built on torch: what they make may be modules; methods and attributes of their classes, by their sources.
_ON_TORCH: Mapping[str, str] = {
    "accelerate": "log mode remainder",
    "diffusers": "add log mode norm sign size tanh",
    "ema_pytorch": "",
    "hyper_connections": "norm",
    "lightning": "log mode scatter size",
    "local_attention": "norm",
    "peft": "size svd",
    "pytorch_lightning": "log mode scatter size",
    "rotary_embedding_torch": "",
    "timm": "dist expand mode norm size",
    "torch_einops_utils": "",
    "torchinfo": "",
    "torchmetrics": "clone mode norm quantile",
    "transformers": "add cholesky detach expand inverse log mode norm remainder scatter size tanh",
    "vector_quantize_pytorch": "norm",
    "x_transformers": "norm",
}
_MODULES = frozenset({"bfloat16", "double", "float", "half"})  # methods of torch's modules


def methods_of(imported: Iterable[str], modules: bool) -> frozenset[str] | None:
    """The names of methods that the types of the `imported` top-level modules share with tensors; None when one of
    them is not known here. `modules`: whether torch's modules are in sight."""
    found: set[str] = set(_MODULES) if modules else set()
    for top in imported:
        if top in _EVERYTHING:
            return None
        if top in _ON_TORCH:
            found |= {*_ON_TORCH[top].split(), *_MODULES}
            continue
        names = _STANDARD.get(top, "" if top in sys.stdlib_module_names else None)
        names = _LIBRARIES.get(top, "" if top in _NONE else None) if names is None else names
        if names is None:
            return None
        found.update(names.split())
    return frozenset(found)
