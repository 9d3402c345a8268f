"""Recurrent layers, attention and transformers against torch."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn
from torch.nn.utils import rnn

from jaxmigrate.layers.library import attention, recurrent, transformer
from jaxmigrate.layers.library.base import named_parameters

KINDS = ["RNN", "LSTM", "GRU"]
OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "batch_first": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
]
CAUSAL = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.zeros((3, 5), bool)
PADDING[1, 3:] = PADDING[2, 4] = True


def both(name, *args, rngs, **options):
    module = {"RN": recurrent, "LS": recurrent, "GR": recurrent, "Mu": attention}.get(name[:2], transformer)
    return getattr(nn, name)(*args, **options), getattr(module, name)(*args, **options, rngs=rngs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_recurrent(same, rngs, normal, kind, options):
    same(*both(kind, 4, 5, **options, rngs=rngs), normal(3, 6, 4), modes=("train",))


@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_with_state_and_without_batch(same, rngs, normal, kind):
    states = (normal(2, 3, 5), normal(2, 3, 5)) if kind == "LSTM" else normal(2, 3, 5)
    same(*both(kind, 4, 5, 2, rngs=rngs), normal(6, 3, 4), states, modes=("train",))
    same(*both(kind, 4, 5, rngs=rngs), normal(6, 4), modes=("train",))
    states = (normal(1, 5), normal(1, 5)) if kind == "LSTM" else normal(1, 5)
    same(*both(kind, 4, 5, rngs=rngs), normal(6, 4), states, modes=("train",))


@pytest.mark.parametrize("kind", KINDS)
def test_cells(same, rngs, normal, kind):
    same(*both(f"{kind}Cell", 4, 5, rngs=rngs), normal(3, 4), modes=("train",))
    states = (normal(3, 5), normal(3, 5)) if kind == "LSTM" else normal(3, 5)
    same(*both(f"{kind}Cell", 4, 5, False, rngs=rngs), normal(3, 4), states, modes=("train",))


def test_recurrent_variants(same, rngs, normal):
    same(*both("LSTM", 4, 5, 2, proj_size=3, bidirectional=True, rngs=rngs), normal(6, 3, 4), modes=("train",))
    same(*both("RNN", 4, 5, 2, "relu", rngs=rngs), normal(6, 3, 4), modes=("train",))
    same(*both("RNNCell", 4, 5, nonlinearity="relu", rngs=rngs), normal(3, 4), modes=("train",))


class _Packed(nn.Module):
    """Pack, run, unpack; the same code for both sides."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        return packed_run(rnn, self.layer, x, lengths)


class _OurPacked(nnx.Module):
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x, lengths):
        return packed_run(recurrent, self.layer, x, lengths)


def packed_run(module, layer, x, lengths):
    packed = module.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, state = layer(packed)
    out, lengths = module.pad_packed_sequence(out, batch_first=True)
    return out, lengths, state


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(same, rngs, normal, kind):
    options = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    theirs, ours = both(kind, 4, 5, **options, rngs=rngs)
    same(_Packed(theirs), _OurPacked(ours), normal(3, 6, 4), lengths=np.array([2, 6, 4]), modes=("train",))


def test_packing_cuts_and_pads(normal):
    x, lengths = normal(3, 6, 2), np.array([4, 3, 1])
    theirs = rnn.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), batch_first=True)
    ours = recurrent.pack_padded_sequence(jnp.asarray(x), lengths, batch_first=True)
    for options in ({}, {"batch_first": True, "padding_value": -1.0}, {"total_length": 6}):
        want, _ = rnn.pad_packed_sequence(theirs, **options)
        np.testing.assert_array_equal(recurrent.pad_packed_sequence(ours, **options)[0], want)
    with pytest.raises(ValueError, match="decreasing"):
        recurrent.pack_padded_sequence(jnp.asarray(x), np.array([1, 4, 3]), batch_first=True)


def test_pad_sequence(same, normal):
    for options in ({}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}):
        rows = [normal(n, 2) for n in (3, 1, 4)]
        same(rnn.pad_sequence, recurrent.pad_sequence, rows, **options)


def test_dropout_between_layers(rngs, normal):
    for layer in (recurrent.LSTM(4, 5, 2, dropout=0.5, rngs=rngs), recurrent.GRU(4, 5, 2, dropout=0.5, rngs=rngs)):
        x = jnp.asarray(normal(6, 3, 4))
        assert not np.array_equal(layer(x)[0], layer(x)[0])
        layer.eval()
        np.testing.assert_array_equal(layer(x)[0], layer(x)[0])


ATTENTION = [
    ({"batch_first": True}, {}),
    ({"batch_first": False}, {"average_attn_weights": False}),
    ({"batch_first": True, "bias": False}, {"attn_mask": CAUSAL, "key_padding_mask": PADDING}),
    ({"batch_first": True}, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
    ({"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}, {"key_padding_mask": PADDING}),
]


@pytest.mark.parametrize(("build", "call"), ATTENTION, ids=range(len(ATTENTION)))
def test_attention(same, rngs, normal, build, call):
    shape = (3, 5, 8) if build["batch_first"] else (5, 3, 8)
    theirs, ours = both("MultiheadAttention", 8, 2, **build, rngs=rngs)
    same(theirs, ours, normal(*shape), normal(*shape), normal(*shape), **call, modes=("train",))


def test_attention_with_other_widths_and_without_batch(same, rngs, normal):
    theirs, ours = both("MultiheadAttention", 8, 2, kdim=6, vdim=4, batch_first=True, rngs=rngs)
    same(theirs, ours, normal(3, 5, 8), normal(3, 7, 6), normal(3, 7, 4))
    theirs, ours = both("MultiheadAttention", 8, 2, rngs=rngs)
    same(theirs, ours, normal(5, 8), normal(6, 8), normal(6, 8), key_padding_mask=np.array([False] * 5 + [True]))
    theirs, ours = both("MultiheadAttention", 8, 2, batch_first=True, rngs=rngs)
    x = normal(3, 5, 8)
    same(theirs, ours, x, x, x, attn_mask=normal(6, 5, 5), average_attn_weights=False, modes=("train",))


def test_attention_of_rows_with_everything_blocked(same, rngs, normal):
    padding = PADDING.copy()
    padding[1] = True
    theirs, ours = both("MultiheadAttention", 8, 2, batch_first=True, rngs=rngs)
    x = normal(3, 5, 8)
    same(theirs, ours, x, x, x, key_padding_mask=padding, need_weights=False, modes=("train",))
    same(theirs, ours, x, x, x, key_padding_mask=padding, modes=("eval",))


def test_attention_needs_a_mask_for_its_causal_hint(rngs):
    x = jnp.ones((1, 2, 8))
    with pytest.raises(ValueError, match="attn_mask"):
        attention.MultiheadAttention(8, 2, rngs=rngs)(x, x, x, is_causal=True)


LAYER = [{}, {"norm_first": True, "activation": "gelu", "batch_first": True}, {"bias": False, "batch_first": True}]


@pytest.mark.parametrize("options", LAYER, ids=str)
def test_transformer_layers(same, rngs, normal, options):
    options = {"dropout": 0.0, **options}
    theirs, ours = both("TransformerEncoderLayer", 8, 2, 16, **options, rngs=rngs)
    same(theirs, ours, normal(3, 5, 8), modes=("train",))
    theirs, ours = both("TransformerDecoderLayer", 8, 2, 16, **options, rngs=rngs)
    same(theirs, ours, normal(3, 5, 8), normal(3, 5, 8), modes=("train",))


def test_transformer_stacks(same, rngs, normal):
    sizes = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0, "batch_first": True}
    their_layer, our_layer = both("TransformerEncoderLayer", **sizes, rngs=rngs)
    theirs = nn.TransformerEncoder(their_layer, 2, nn.LayerNorm(8), enable_nested_tensor=False)
    ours = transformer.TransformerEncoder(our_layer, 2, transformer.LayerNorm(8), rngs=rngs)
    same(theirs, ours, normal(3, 5, 8), mask=CAUSAL, src_key_padding_mask=PADDING)
    their_layer, our_layer = both("TransformerDecoderLayer", **sizes, rngs=rngs)
    theirs = nn.TransformerDecoder(their_layer, 2)
    ours = transformer.TransformerDecoder(our_layer, 2, rngs=rngs)
    masks = {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING}
    same(theirs, ours, normal(3, 5, 8), normal(3, 5, 8), **masks, modes=("train",))


def test_transformer(same, rngs, normal):
    sizes = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 16}
    theirs, ours = both("Transformer", **sizes, dropout=0.0, activation="gelu", rngs=rngs)
    mask = np.array(transformer.generate_square_subsequent_mask(4))
    np.testing.assert_array_equal(mask, nn.Transformer.generate_square_subsequent_mask(4))
    assert [n for n, _ in named_parameters(ours)] == [n for n, _ in theirs.named_parameters()]
    same(theirs, ours, normal(5, 3, 8), normal(4, 3, 8), tgt_mask=mask, modes=("train",))


def test_copies_of_a_layer_start_equal_and_drop_differently(rngs):
    layer = transformer.TransformerEncoderLayer(8, 2, 16, dropout=0.5, rngs=rngs)
    first, second = transformer.TransformerEncoder(layer, 2, rngs=rngs).layers
    np.testing.assert_array_equal(first.linear1.weight[...], second.linear1.weight[...])
    assert not np.array_equal(first.dropout(jnp.ones(50)), second.dropout(jnp.ones(50)))
