import torch
from . import build

if __name__ == '__main__':
    print(tuple(build(4)(torch.ones(2, 4)).shape))
