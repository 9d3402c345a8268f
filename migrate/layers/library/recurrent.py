"""Recurrent layers, on padded arrays with lengths where torch packs sequences."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from .dropout import dropout
from .linear import _array, _uniform


class PackedSequence(NamedTuple):
    """A padded batch (time, batch, ...) and the length of each sequence, in the order of the batch."""

    data: Any
    lengths: Any


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """The batch cut to its longest length; under jit, where lengths are unknown, it keeps its padded length."""
    data = input.swapaxes(0, 1) if batch_first else input
    if not isinstance(lengths, jax.core.Tracer):
        lengths = np.asarray(lengths)
        if enforce_sorted and (lengths[1:] > lengths[:-1]).any():
            raise ValueError("lengths must be in decreasing order; pass enforce_sorted=False if they are not")
        data = data[: int(lengths.max())]
    return PackedSequence(data, lengths)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """The padded batch and its lengths."""
    data, lengths = sequence
    if total_length is not None:
        data = jnp.pad(data, [(0, total_length - data.shape[0])] + [(0, 0)] * (data.ndim - 1))
    inside = jnp.arange(data.shape[0])[:, None] < lengths
    data = jnp.where(inside.reshape(inside.shape + (1,) * (data.ndim - 2)), data, padding_value)
    return data.swapaxes(0, 1) if batch_first else data, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Sequences (length, ...) stacked into one array, the shorter ones padded."""
    longest = max(s.shape[0] for s in sequences)

    def pad_one(s):
        missing = longest - s.shape[0]
        side = (0, missing) if padding_side == "right" else (missing, 0)
        return jnp.pad(s, [side] + [(0, 0)] * (s.ndim - 1), constant_values=padding_value)

    return jnp.stack([pad_one(s) for s in sequences], 0 if batch_first else 1)


def _rnn_step(nonlinearity):
    activation = {"tanh": jnp.tanh, "relu": jax.nn.relu}[nonlinearity]

    def step(x, state, w_hh, b_hh, w_hr):
        return (activation(x + state[0] @ w_hh + b_hh),)

    return step


def _lstm_step(x, state, w_hh, b_hh, w_hr):
    h, c = state
    i, f, g, o = jnp.split(x + h @ w_hh + b_hh, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h if w_hr is None else h @ w_hr), c


def _gru_step(x, state, w_hh, b_hh, w_hr):
    (h,) = state
    xr, xz, xn = jnp.split(x, 3, -1)
    hr, hz, hn = jnp.split(h @ w_hh + b_hh, 3, -1)
    r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
    n = jnp.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


class _Recurrent(nnx.Module):
    """Stacked recurrent layers. A subclass says how many gates and states it has and gives the step."""

    gates: int
    states = 1

    def _build(self, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, rngs):
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.deterministic, self.rngs = False, rngs.dropout.fork() if dropout else None
        out, rows = proj_size or hidden_size, self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * (1 + bidirectional)
            for tag in self._tags(layer):
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    setattr(self, name + tag, nnx.Param(_uniform(rngs, shape, 1 / math.sqrt(hidden_size))))

    def _tags(self, layer):
        return [f"_l{layer}", f"_l{layer}_reverse"][: 1 + self.bidirectional]

    def _scan(self, x, state, tag, lengths):
        """One direction of one layer over (time, batch, ...): the outputs and the last state."""
        names = "weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"
        w_ih, w_hh, b_ih, b_hh, w_hr = (_array(getattr(self, name + tag, None)) for name in names)
        x = x @ w_ih.T + (b_ih if self.bias else 0)
        w_hh, w_hr = w_hh.T, None if w_hr is None else w_hr.T  # once, not in every step

        def step(state, inputs):
            xt, t = inputs
            new = self._step(xt, state, w_hh, b_hh if self.bias else 0, w_hr)
            if lengths is None:
                return new, new[0]
            alive = (t < lengths)[:, None]
            new = tuple(jnp.where(alive, n, s) for n, s in zip(new, state, strict=True))
            return new, jnp.where(alive, new[0], 0)

        state, outputs = lax.scan(step, state, (x, jnp.arange(x.shape[0])), reverse=tag.endswith("_reverse"))
        return outputs, state

    def __call__(self, input, hx=None):
        packed = isinstance(input, PackedSequence)
        x, lengths = input if packed else (input, None)
        batched = x.ndim == 3
        if not batched:
            x = x[:, None]
            hx = jax.tree.map(lambda h: h[:, None], hx)
        elif self.batch_first and not packed:
            x = x.swapaxes(0, 1)
        if hx is None:
            widths = [self.proj_size or self.hidden_size, self.hidden_size][: self.states]
            count = self.num_layers * (1 + self.bidirectional)
            hx = tuple(jnp.zeros((count, x.shape[1], width), x.dtype) for width in widths)
        elif self.states == 1:
            hx = (hx,)
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout and not self.deterministic:
                x = dropout(x, self.rngs(), self.dropout)
            outputs = []
            for tag in self._tags(layer):
                out, state = self._scan(x, tuple(h[len(last)] for h in hx), tag, lengths)
                outputs.append(out)
                last.append(state)
            x = jnp.concatenate(outputs, -1)
        state = tuple(jnp.stack(s) for s in zip(*last, strict=True))
        if not batched:
            x, state = x[:, 0], tuple(s[:, 0] for s in state)
        elif packed:
            x = PackedSequence(x, lengths)
        elif self.batch_first:
            x = x.swapaxes(0, 1)
        return x, state if self.states > 1 else state[0]


class RNN(_Recurrent):
    """Elman network: h = tanh(W_ih x + b_ih + W_hh h + b_hh)."""

    gates = 1

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        nonlinearity="tanh",
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        *,
        rngs: nnx.Rngs,
    ):
        self.nonlinearity = nonlinearity
        self._build(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, rngs)

    @property
    def _step(self):
        return _rnn_step(self.nonlinearity)


class LSTM(_Recurrent):
    """Long short-term memory; the rows of the weights are the gates i, f, g, o."""

    gates, states = 4, 2
    _step = staticmethod(_lstm_step)

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        proj_size=0,
        *,
        rngs: nnx.Rngs,
    ):
        self._build(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, rngs)


class GRU(_Recurrent):
    """Gated recurrent unit; the rows of the weights are the gates r, z, n."""

    gates = 3
    _step = staticmethod(_gru_step)

    def __init__(
        self,
        input_size,
        hidden_size,
        num_layers=1,
        bias=True,
        batch_first=False,
        dropout=0.0,
        bidirectional=False,
        *,
        rngs: nnx.Rngs,
    ):
        self._build(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, rngs)


class _Cell(nnx.Module):
    """One step of a recurrent layer."""

    gates: int
    states = 1

    def __init__(self, input_size, hidden_size, bias=True, *, rngs: nnx.Rngs):
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows, bound = self.gates * hidden_size, 1 / math.sqrt(hidden_size)
        self.weight_ih = nnx.Param(_uniform(rngs, (rows, input_size), bound))
        self.weight_hh = nnx.Param(_uniform(rngs, (rows, hidden_size), bound))
        self.bias_ih = nnx.Param(_uniform(rngs, (rows,), bound)) if bias else None
        self.bias_hh = nnx.Param(_uniform(rngs, (rows,), bound)) if bias else None

    def __call__(self, input, hx=None):
        if hx is None:
            hx = (jnp.zeros((*input.shape[:-1], self.hidden_size), input.dtype),) * self.states
        elif self.states == 1:
            hx = (hx,)
        x = input @ self.weight_ih[...].T + (self.bias_ih[...] if self.bias else 0)
        state = self._step(x, hx, self.weight_hh[...].T, self.bias_hh[...] if self.bias else 0, None)
        return state if self.states > 1 else state[0]


class RNNCell(_Cell):
    """One step of an RNN."""

    gates = 1

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", *, rngs: nnx.Rngs):
        super().__init__(input_size, hidden_size, bias, rngs=rngs)
        self.nonlinearity = nonlinearity

    @property
    def _step(self):
        return _rnn_step(self.nonlinearity)


class LSTMCell(_Cell):
    """One step of an LSTM."""

    gates, states = 4, 2
    _step = staticmethod(_lstm_step)


class GRUCell(_Cell):
    """One step of a GRU."""

    gates = 3
    _step = staticmethod(_gru_step)
