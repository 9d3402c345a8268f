from torch import nn
from torch.nn import functional as F
from torch.nn import Linear, GELU as Act
from .layers import *
from .model import Net as Model, build
from . import sub
