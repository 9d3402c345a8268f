"""Small programs for each way in which models hold and name their parts; tests/test_structure.py runs them.

Every program defines `Net`. `INPUTS` says what to feed those that do not take (2, 4) floats.
"""

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
"""

EQUAL = {
    "list_attr_tuple": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)
        self.pair = (self.a, self.b)
    def forward(self, x):
        for l in self.pair:
            x = torch.relu(l(x))
        return x
""",
    "plain_list": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(2)]
        self.ml = nn.ModuleList(self.layers)
    def forward(self, x):
        for l in self.layers:
            x = torch.relu(l(x))
        return x
""",
    "add_module_loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(3):
            self.add_module("fc%d" % i, nn.Linear(4, 4))
    def forward(self, x):
        for i in range(3):
            x = torch.tanh(getattr(self, f"fc{i}")(x))
        return x
""",
    "setattr_loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(3):
            setattr(self, f"fc{i}", nn.Linear(4, 4))
    def forward(self, x):
        for i in range(3):
            x = torch.tanh(getattr(self, f"fc{i}")(x))
        return x
""",
    "moduledict_iter": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.ModuleDict({"z": nn.Linear(4, 4), "a": nn.Linear(4, 4)})
        self.d["m"] = nn.Linear(4, 4)
    def forward(self, x):
        for name, l in self.d.items():
            x = torch.tanh(l(x)) + len(name)
        return self.d["a"](x)
""",
    "seq_index_slice": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        s = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
        self.body = s[:3]
        self.head = s[-1]
        self.mid = s[3]
    def forward(self, x):
        return self.head(self.mid(self.body(x)))
""",
    "seq_ordered": """
from collections import OrderedDict
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(OrderedDict([("fc", nn.Linear(4, 4)), ("act", nn.ReLU()), ("b", nn.Linear(4, 2))]))
    def forward(self, x):
        return self.net(x) + self.net.fc(x)[:, :2]
""",
    "seq_star": """
def block(i, o):
    return [nn.Linear(i, o), nn.BatchNorm1d(o), nn.LeakyReLU(0.2)]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(*block(4, 8), *block(8, 8), nn.Linear(8, 1))
    def forward(self, x):
        return self.net(x)
""",
    "sub_sequential": """
class ConvBN(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU())
        self.o = o
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = ConvBN(4, 6); self.b = ConvBN(self.a.o, 2)
    def forward(self, x):
        return self.b(self.a(x))
""",
    "sub_linear": """
class WS(nn.Linear):
    def forward(self, x):
        w = self.weight - self.weight.mean(dim=1, keepdim=True)
        return F.linear(x, w, self.bias)
class LN(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x) * 2
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = WS(4, 6); self.n = LN(6)
    def forward(self, x):
        return self.n(self.a(x))
""",
    "sub_conv_args": """
class SameConv(nn.Conv2d):
    def __init__(self, i, o, k, **kw):
        super().__init__(i, o, k, padding=k // 2, **kw)
        self.gain = nn.Parameter(torch.ones(o, 1, 1, 1))
    def forward(self, x):
        return F.conv2d(x, self.weight * self.gain, self.bias, self.stride, self.padding, self.dilation, self.groups)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = SameConv(3, 4, 3, stride=2)
    def forward(self, x):
        return self.a(x)
""",
    "dict_of_classes": """
ACT = {"relu": nn.ReLU, "gelu": nn.GELU}
NORM = dict(ln=nn.LayerNorm, bn=nn.BatchNorm1d)
class Net(nn.Module):
    def __init__(self, act="gelu", norm="ln"):
        super().__init__()
        self.act = ACT[act](); self.norm = NORM[norm](4); self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.act(self.norm(self.fc(x)))
""",
    "lambda_holds": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.f = lambda x: torch.relu(self.fc(x))
    def forward(self, x):
        return self.f(x)
""",
    "closure_factory": """
from functools import partial
def make(dim):
    norm = partial(nn.LayerNorm, eps=1e-6)
    get = lambda: nn.Sequential(norm(dim), nn.Linear(dim, dim))
    return nn.ModuleList([get() for _ in range(2)])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ls = make(4)
    def forward(self, x):
        for l in self.ls:
            x = l(x) + x
        return x
""",
    "plain_tensor_attr": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.tensor([1., 2., 3., 4.])
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x * self.scale)
""",
    "lazy_none": """
class Net(nn.Module):
    def __init__(self, proj=True):
        super().__init__()
        self.proj = None
        self.cache = None
        if proj:
            self.proj = nn.Linear(4, 4)
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        if self.proj is not None:
            x = self.proj(x)
        if self.cache is None or self.cache.shape[0] != x.shape[0]:
            self.cache = torch.arange(x.shape[0]).float()[:, None]
        return self.fc(x) + self.cache
""",
    "buffers_loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(3):
            self.register_buffer(f"b{i}", torch.full((4,), float(i)))
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        for i in range(3):
            x = x + getattr(self, f"b{i}")
        return self.fc(x)
""",
    "buffer_reassign": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(4))
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        self.count = self.count + 1
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.fc(x - self.mean) * self.count
""",
    "register_buffer_in_forward": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("pos", None, persistent=False)
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        if self.pos is None:
            self.register_buffer("pos", torch.arange(4).float(), persistent=False)
        return self.fc(x + self.pos)
""",
    "deepcopy_layers": """
import copy
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4); self.drop = nn.Dropout(0.0)
    def forward(self, x):
        return self.drop(torch.relu(self.fc(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        b = Block()
        self.layers = nn.ModuleList([copy.deepcopy(b) for _ in range(3)])
    def forward(self, x):
        for l in self.layers:
            x = l(x)
        return x
""",
    "orders": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.z = nn.Linear(4, 4)
        self.register_buffer("buf", torch.ones(4))
        self.g = nn.Parameter(torch.ones(4))
        self.a = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    def forward(self, x):
        y = self.a(self.z(x) * self.g) + self.buf
        names = [n for n, _ in self.named_parameters()]
        kids = [n for n, _ in self.named_children()]
        mods = [type(m).__name__ for m in self.modules()]
        assert names == ["g", "z.weight", "z.bias", "a.0.weight", "a.0.bias", "a.1.weight", "a.1.bias"], names
        assert kids == ["z", "a"], kids
        assert mods == ["Net", "Linear", "Sequential", "Linear", "BatchNorm1d"], mods
        return y * sum(p.numel() for p in self.parameters() if p.requires_grad) + len(self.state_dict())
""",
    "state_dict_load": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)
    def forward(self, x):
        self.b.load_state_dict(self.a.state_dict())
        return self.b(x)
""",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)
    def _f(self, x, s):
        return torch.relu(self.a(x)) * s
    def forward(self, x):
        x = checkpoint(self._f, x, 2.0, use_reentrant=False)
        return checkpoint(self.b, x, use_reentrant=False)
""",
    "mixin": """
class Helper:
    def scaled(self, x):
        return self.fc(x) * self.factor
class Net(Helper, nn.Module):
    factor = 3.0
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.scaled(x)
""",
    "what_heirs_hold": """
from einops import repeat
class Start:
    def forward(self, x):
        first = repeat(self.token, "d -> b d", b=len(x))
        return self.last(torch.cat((first, self.middle(x)), dim=1)).mean(dim=1, keepdim=True)
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.ones(2))
    def middle(self, x):
        return x * repeat(self.scale, "d -> b d", b=len(x))
class Net(Start, Base):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)
        self.register_buffer("scale", torch.ones(4))
""",
    "dataclass_cfg": """
from dataclasses import dataclass
@dataclass
class Cfg:
    dim: int = 4
    depth: int = 2
    act: type = nn.GELU
class Net(nn.Module):
    def __init__(self, cfg: Cfg = None):
        super().__init__()
        cfg = cfg or Cfg()
        self.cfg = cfg
        self.ls = nn.ModuleList(nn.Linear(cfg.dim, cfg.dim) for _ in range(cfg.depth))
        self.act = cfg.act()
    def forward(self, x):
        for l in self.ls:
            x = self.act(l(x))
        return x
""",
    "abc_generic": """
from abc import ABC, abstractmethod
from typing import Generic, TypeVar
T = TypeVar("T")
class Base(nn.Module, ABC):
    @abstractmethod
    def encode(self, x): ...
    def forward(self, x):
        return self.encode(x) * 2
class Net(Base, Generic[T]):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def encode(self, x):
        return self.fc(x)
""",
    "property_classattr": """
class Net(nn.Module):
    gain = 2.0
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    @property
    def w(self):
        return self.fc.weight * self.gain
    @property
    def device(self):
        return next(self.parameters()).device
    def forward(self, x):
        return F.linear(x.to(self.device), self.w)
""",
    "module_training": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4); self.bn = nn.BatchNorm1d(4)
    def forward(self, x):
        x = self.fc(x)
        if self.bn.training:
            return self.bn(x) + 1
        return self.bn(x)
""",
    "weight_norm_old": """
from torch.nn.utils import weight_norm, spectral_norm
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = weight_norm(nn.Linear(4, 4)); self.b = nn.utils.weight_norm(nn.Conv1d(1, 2, 3), dim=0)
    def forward(self, x):
        return self.b(self.a(x)[:, None])
""",
    "weight_norm_new": """
from torch.nn.utils.parametrizations import weight_norm
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = weight_norm(nn.Linear(4, 4))
    def forward(self, x):
        return self.a(x)
""",
    "spectral_norm_old": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.spectral_norm(nn.Linear(4, 4))
    def forward(self, x):
        return self.a(x)
""",
    "spectral_norm_new": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    def forward(self, x):
        return self.a(x)
""",
    "params_vector": """
from torch.nn.utils import parameters_to_vector, vector_to_parameters
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 2)
    def forward(self, x):
        v = parameters_to_vector(self.parameters())
        return self.b(self.a(x)) * v.sum() + v.shape[0]
""",
    "bare_module": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mid = nn.Module()
        self.mid.a = nn.Linear(4, 4)
        self.mid.b = nn.Linear(4, 4)
    def forward(self, x):
        return self.mid.b(self.mid.a(x))
""",
    "param_kw_rg": """
class Net(nn.Module):
    def __init__(self, learn=False):
        super().__init__()
        self.t = nn.Parameter(torch.ones(4), requires_grad=learn)
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x * self.t)
""",
    "param_list_dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.ps = nn.ParameterList([nn.Parameter(torch.full((4,), float(i))) for i in range(3)])
        self.pd = nn.ParameterDict({"z": nn.Parameter(torch.ones(4)), "a": nn.Parameter(torch.ones(4) * 2)})
    def forward(self, x):
        for p in self.ps:
            x = x * p + 1
        for k, v in self.pd.items():
            x = x * v - 1
        return x + self.ps[0]
""",
    "isinstance_init": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.n = nn.LayerNorm(4)
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.constant_(m.weight, 0.1)
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
            elif isinstance(m, (nn.LayerNorm, nn.GroupNorm)):
                m.weight.data.fill_(2.0)
                m.bias.data.zero_()
    def forward(self, x):
        return self.n(self.a(x))
""",
    "stochastic_depth": """
class DropPath(nn.Module):
    def __init__(self, p=0.0):
        super().__init__()
        self.p = p
    def forward(self, x):
        if self.p == 0. or not self.training:
            return x
        keep = 1 - self.p
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0:
            mask.div_(keep)
        return x * mask
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.d = DropPath(0.0)
    def forward(self, x):
        return x + self.d(self.a(x))
""",
    "seq_append_len": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.s = nn.Sequential()
        self.s.add_module("fc", nn.Linear(4, 4))
        self.s.append(nn.ReLU())
        for i in range(2):
            self.s.add_module(f"l{i}", nn.Linear(4, 4))
    def forward(self, x):
        for i in range(len(self.s)):
            x = self.s[i](x)
        return x
""",
    "modulelist_ops": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.ModuleList([nn.Linear(4, 4)])
        self.l.append(nn.Linear(4, 4)); self.l.extend([nn.Linear(4, 4)]); self.l.insert(0, nn.Linear(4, 4))
        self.l += [nn.Linear(4, 4)]
    def forward(self, x):
        for i, m in enumerate(self.l[1:]):
            x = torch.tanh(m(x)) * (i + 1)
        return self.l[-1](x) + len(self.l)
""",
    "children_list": """
class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(4, 4); self.act = nn.ReLU(); self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.act(self.c(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        b = Back()
        self.feat = nn.Sequential(*list(b.children())[:-1])
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(self.feat(x))
""",
    "replace_head": """
class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Linear(4, 4); self.fc = nn.Linear(4, 2)
    def forward(self, x):
        return self.fc(torch.relu(self.c(x)))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = Back()
        self.b.fc = nn.Linear(self.b.fc.in_features, 5)
    def forward(self, x):
        return self.b(x)
""",
    "tied": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(10, 4); self.o = nn.Linear(4, 10, bias=False)
        self.o.weight = self.e.weight
    def forward(self, x):
        return self.o(self.e(x))
""",
    "default_class_arg": """
class Net(nn.Module):
    def __init__(self, norm=nn.LayerNorm, act=nn.ReLU(), layer=None):
        super().__init__()
        layer = layer or nn.Linear
        self.n = norm(4); self.act = act; self.fc = layer(4, 4)
    def forward(self, x):
        return self.act(self.fc(self.n(x)))
""",
    "nested_return_dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict()
        for k in ("b", "a"):
            self.heads[k] = nn.Linear(4, 2)
    def forward(self, x):
        out = {k: h(x) for k, h in self.heads.items()}
        return torch.cat([v for v in out.values()], dim=-1)
""",
    "rnn_packed": """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
    def forward(self, x):
        lengths = torch.tensor([5, 3])
        p = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        o, (h, c) = self.rnn(p)
        o, n = pad_packed_sequence(o, batch_first=True)
        return torch.cat([o.sum(1), h[-1]], 1)
""",
    "apply_fn": """
def init(m):
    if type(m) == nn.Linear:
        m.weight.data.normal_(0, 0.0)
        m.bias.data.fill_(0.01)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.a.apply(init)
    def forward(self, x):
        return self.a(x)
""",
    "classname_init": """
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        nn.init.constant_(m.weight.data, 0.2)
    elif classname.find("BatchNorm") != -1:
        m.weight.data.fill_(1.5)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.apply(weights_init)
    def forward(self, x):
        return self.a(x)
""",
    "freeze": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)
        self.a.weight.requires_grad = False
        self.a.requires_grad_(False)
        for name, p in self.named_parameters():
            if "a." in name:
                p.requires_grad_(False)
    def forward(self, x):
        return self.b(self.a(x))
""",
}

# What is left, and the code that says so.
REPORTED = {
    "forward_hook": (
        "JM301",
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4); self.b = nn.Linear(4, 4)
        self.feats = {}
        self.a.register_forward_hook(self._hook)
    def _hook(self, module, inp, out):
        self.feats["a"] = out
    def forward(self, x):
        y = self.b(self.a(x))
        return y + self.feats["a"]
""",
    ),
    "init_as_value": (
        "JM203",
        """
INITS = {"xavier": nn.init.xavier_uniform_, "const": lambda w: nn.init.constant_(w, 0.5)}
class Net(nn.Module):
    def __init__(self, init="const"):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        INITS[init](self.fc.weight)
    def forward(self, x):
        return self.fc(x)
""",
    ),
}

INPUTS = {
    "sub_conv_args": "torch.randn(2, 3, 8, 8)",
    "tied": "torch.randint(0, 10, (2, 3))",
    "rnn_packed": "torch.randn(2, 5, 4)",
}
INITIALISED = ("isinstance_init", "apply_fn", "classname_init")
