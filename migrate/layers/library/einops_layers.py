"""einops as layers."""

import einops
from flax import nnx


class Rearrange(nnx.Module):
    """einops.rearrange with a fixed pattern."""

    def __init__(self, pattern, *, rngs: nnx.Rngs | None = None, **axes_lengths):
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def __call__(self, input):
        return einops.rearrange(input, self.pattern, **self.axes_lengths)


class Reduce(nnx.Module):
    """einops.reduce with a fixed pattern."""

    def __init__(self, pattern, reduction, *, rngs: nnx.Rngs | None = None, **axes_lengths):
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, axes_lengths

    def __call__(self, input):
        return einops.reduce(input, self.pattern, self.reduction, **self.axes_lengths)
