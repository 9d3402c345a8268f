"""Programs that look layers and functions up by name, or build them from a dict of arguments;
tests/test_structure.py runs them."""

EQUAL = {
    "getattr_default": """
class Net(nn.Module):
    def __init__(self, act="ReLU"):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = getattr(nn, act)()
    def forward(self, x):
        return self.act(self.fc(x))
""",
    "getattr_calls": """
def norm(kind, n):
    return getattr(nn, kind)(n)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = norm("BatchNorm1d", 4)
        self.b = norm(n=4, kind="LayerNorm")
    def forward(self, x):
        return self.b(self.a(x))
""",
    "getattr_literal": """
from typing import Literal, Optional
class Block(nn.Module):
    def __init__(self, act: Optional[Literal["GELU", "Tanh"]] = None):
        super().__init__()
        self.act = getattr(nn, act)() if act else nn.Identity()
    def forward(self, x):
        return self.act(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block(); self.b = Block("GELU")
    def forward(self, x):
        return self.b(self.a(x))
""",
    "getattr_rnn": """
class Net(nn.Module):
    def __init__(self, mode="GRU"):
        super().__init__()
        assert mode in ("RNN", "GRU")
        self.rnn = getattr(nn, mode)(4, 3, batch_first=True)
    def forward(self, x):
        return self.rnn(x)[0]
""",
    "getattr_pattern": """
class Net(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.conv = getattr(nn, f"Conv{dim}d")(4, 3, 1)
        self.pool = getattr(nn, "AvgPool%dd" % dim)(2)
    def forward(self, x):
        return self.pool(self.conv(x))
""",
    "getattr_function_of_the_layer_file": """
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        pool = getattr(F, f"adaptive_avg_pool{self.dim}d")
        return getattr(F, f"adaptive_avg_pool{self.dim}d")(x, 2) + pool(x, output_size=2)
""",
    "getattr_dict": """
NAMES = {"relu": "ReLU", "silu": "SiLU"}
class Net(nn.Module):
    def __init__(self, act="silu"):
        super().__init__()
        self.name = NAMES[act]
        self.act = getattr(nn, self.name)()
    def forward(self, x):
        return self.act(x)
""",
    "getattr_functional": """
class Net(nn.Module):
    def __init__(self, act="gelu"):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = getattr(F, act)
        self.last = getattr(torch, "sigmoid")
    def forward(self, x):
        return self.last(self.act(self.fc(x))) + getattr(F, "relu")(x)
""",
    "factory_kwargs": """
class Scale(nn.Module):
    def __init__(self, n, bias=True, device=None, dtype=None):
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.weight = nn.Parameter(torch.empty((n, n), **factory_kwargs))
        if bias:
            self.bias = nn.Parameter(torch.zeros(n, **factory_kwargs))
        else:
            self.register_parameter("bias", None)
        self.norm = nn.LayerNorm(n, eps=1e-3, **factory_kwargs)
        self.fc = nn.Linear(n, n, bias=bias, **factory_kwargs)
        nn.init.eye_(self.weight)
    def forward(self, x):
        x = x @ self.weight
        return self.fc(self.norm(x if self.bias is None else x + self.bias))
class Net(nn.Module):
    def __init__(self, device=None, dtype=None):
        super().__init__()
        dd = dict(device=device, dtype=dtype)
        self.a = Scale(4, **dd)
        self.b = Scale(4, bias=False, **dd)
        self.conv = nn.Conv1d(2, 2, 1, **dd)
    def forward(self, x):
        return self.conv(self.b(self.a(x)).unsqueeze(0))
""",
    "star_options": """
class Act(nn.Module):
    def __init__(self, options=None, drop=dict(p=0.0)):
        super().__init__()
        self.act = nn.LeakyReLU(**(options or {}))
        self.drop = nn.Dropout(**drop)
    def forward(self, x):
        return self.drop(self.act(x * 2))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        options = {"inplace": True, "negative_slope": 0.3}
        self.a = Act(options); self.b = Act(); self.c = nn.LeakyReLU(**options)
    def forward(self, x):
        x = self.b(self.a(x))
        return self.c(x - 1)
""",
    "init_default": """
class Net(nn.Module):
    def __init__(self, init_fn=nn.init.ones_):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        init_fn(self.fc.weight)
    def forward(self, x):
        return self.fc(x)
""",
    "init_partial": """
from functools import partial
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        fill = partial(nn.init.constant_, val=0.5)
        fill(self.fc.weight.data)
        clear = nn.init.zeros_
        for layer in [self.fc]:
            clear(layer.bias)
    def forward(self, x):
        return self.fc(x)
""",
    "init_dict": """
INITS = {"ones": nn.init.ones_, "random": nn.init.xavier_uniform_}
def reset(m, init):
    if isinstance(m, nn.Linear):
        INITS[init](m.weight)
class Net(nn.Module):
    def __init__(self, init="ones", name="eye_"):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.fc2 = nn.Linear(4, 4)
        for m in self.modules():
            reset(m, init)
        getattr(nn.init, name)(self.fc2.weight)
    def forward(self, x):
        return self.fc2(self.fc(x))
""",
    "held_classes_without_inplace": """
ACTS = {"relu": nn.ReLU, "elu": nn.ELU}
class Block(nn.Sequential):
    def __init__(self, act=nn.ReLU, inplace=True):
        params = {} if inplace is None else {"inplace": inplace}
        super().__init__(nn.Linear(4, 4), act(**params))
class Net(nn.Module):
    def __init__(self, layer=nn.ReLU, name="ReLU", act="elu", drop=nn.Dropout):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(nn.SiLU), Block(nn.Hardswish, None))
        acts = [layer(inplace=True), getattr(nn, name)(inplace=True)]
        self.acts = nn.Sequential(*acts, ACTS[act](inplace=True), drop(0.0, inplace=True))
    def forward(self, x):
        return self.acts(self.blocks(x) - 0.2)
""",
    "arguments_taken_out": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.acts = nn.Sequential(nn.ReLU(inplace=True,), nn.ReLU6((True)), nn.Dropout(0.0, (True)))
        self.drop = nn.Dropout(inplace=True)
        self.last = nn.Dropout(
            inplace=True,  # the default rate
        )
        self.fc = nn.Linear((4), 3, device=(None), dtype=None,)
    def forward(self, x):
        if self.training:
            return self.acts(self.fc(x))
        return self.last(self.drop(self.acts(self.fc(x))))
""",
}

REPORTED = {
    "getattr_unknown": (
        "JM304",
        """
class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.act = getattr(nn, config["act"])()
    def forward(self, x):
        return self.act(x)
""",
    ),
    "getattr_default_value": (
        "JM304",
        """
class Net(nn.Module):
    def __init__(self, act="ReLU"):
        super().__init__()
        self.act = getattr(nn, act, nn.Identity)()
    def forward(self, x):
        return self.act(x)
""",
    ),
    "getattr_function_keyword": (
        "JM304",
        """
class Net(nn.Module):
    def forward(self, x, act="relu"):
        return getattr(torch.nn.functional, act)(x, inplace=True)
""",
    ),
    **{
        f"class_held_{number}": (
            "JM202",
            f"""
from functools import partial
class Own(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
class Net(nn.Module):
    def __init__(self, layer=nn.ReLU, mixed=nn.ReLU, loss="CrossEntropyLoss"):
        super().__init__()
        other = nn.CrossEntropyLoss
        self.act = {call}
Net(mixed=Own)
""",
        )
        for number, call in enumerate(
            [
                "layer(True)",
                "mixed(inplace=True)",
                "getattr(nn, loss)(None, True)",
                "other(None, True)",
                "partial(nn.ReLU, inplace=True)()",
            ]
        )
    },
    "factory_kwargs_of_a_type": (
        "JM207",
        """
class Scale(nn.Module):
    def __init__(self, n, dtype=None):
        super().__init__()
        options = {"dtype": dtype}
        self.fc = nn.Linear(n, n, **options)
    def forward(self, x):
        return self.fc(x)
net = Scale(4, dtype=torch.float64)
""",
    ),
    "star_options_that_may_write": (
        "JM206",
        """
class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(**options)
    def forward(self, x):
        x = self.fc(x)
        return self.act(x) + x
""",
    ),
    "init_handed_out": (
        "JM203",
        """
import registry
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        registry.add(nn.init.ones_)
    def forward(self, x):
        return self.fc(x)
""",
    ),
    "init_of_a_slice": (
        "JM206",
        """
class Net(nn.Module):
    def __init__(self, init_fn=nn.init.ones_):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        init_fn(self.fc.weight[:2])
    def forward(self, x):
        return self.fc(x)
""",
    ),
    "inplace_function_as_value": (
        "JM203",
        """
class Net(nn.Module):
    def __init__(self, act=torch.relu_):
        super().__init__()
        self.act = act
    def forward(self, x):
        y = x * 2
        self.act(y)
        return y
""",
    ),
}

INPUTS = {"getattr_rnn": "torch.randn(2, 5, 4)", "getattr_pattern": "torch.randn(2, 4, 6)"}
INITIALISED = ("init_default", "init_partial", "init_dict")
