"""Transformer encoder and decoder."""

import jax
import jax.numpy as jnp
from flax import nnx

from .activation import gelu
from .attention import MultiheadAttention
from .base import clone_module, named_parameters
from .dropout import Dropout
from .init import xavier_uniform
from .linear import Linear
from .norm import LayerNorm


def generate_square_subsequent_mask(sz):
    """A mask (sz, sz) that is 0 on and below the diagonal and -inf above."""
    return jnp.triu(jnp.full((sz, sz), -jnp.inf), 1)


def _activation(activation):
    return {"relu": jax.nn.relu, "gelu": gelu}[activation] if isinstance(activation, str) else activation


class TransformerEncoderLayer(nnx.Module):
    """Self-attention and a feed-forward network, each with dropout, a skip connection and layer norm."""

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        *,
        rngs: nnx.Rngs,
    ):
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, rngs=rngs)
        self.linear1 = Linear(d_model, dim_feedforward, bias, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, rngs=rngs)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.activation = _activation(activation)

    def _attend(self, x, mask, padding):
        return self.dropout1(self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask)[0])

    def _feed_forward(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def __call__(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask)
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask))
        return self.norm2(x + self._feed_forward(x))


class TransformerDecoderLayer(nnx.Module):
    """Self-attention, attention to the encoder's output and a feed-forward network, each with skip and norm."""

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        *,
        rngs: nnx.Rngs,
    ):
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, rngs=rngs)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, rngs=rngs)
        self.linear1 = Linear(d_model, dim_feedforward, bias, rngs=rngs)
        self.dropout = Dropout(dropout, rngs=rngs)
        self.linear2 = Linear(dim_feedforward, d_model, bias, rngs=rngs)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1 = Dropout(dropout, rngs=rngs)
        self.dropout2 = Dropout(dropout, rngs=rngs)
        self.dropout3 = Dropout(dropout, rngs=rngs)
        self.activation = _activation(activation)

    def _attend(self, x, mask, padding):
        return self.dropout1(self.self_attn(x, x, x, padding, need_weights=False, attn_mask=mask)[0])

    def _look(self, x, memory, mask, padding):
        return self.dropout2(self.multihead_attn(x, memory, memory, padding, need_weights=False, attn_mask=mask)[0])

    def _feed_forward(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def __call__(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        x = tgt
        if self.norm_first:
            x = x + self._attend(self.norm1(x), tgt_mask, tgt_key_padding_mask)
            x = x + self._look(self.norm2(x), memory, memory_mask, memory_key_padding_mask)
            return x + self._feed_forward(self.norm3(x))
        x = self.norm1(x + self._attend(x, tgt_mask, tgt_key_padding_mask))
        x = self.norm2(x + self._look(x, memory, memory_mask, memory_key_padding_mask))
        return self.norm3(x + self._feed_forward(x))


class TransformerEncoder(nnx.Module):
    """Copies of an encoder layer, one after the other. Padded positions get values too: mask them where it matters."""

    def __init__(self, encoder_layer, num_layers, norm=None, *, rngs: nnx.Rngs):
        self.layers = nnx.List([clone_module(encoder_layer, rngs=rngs) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def __call__(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(nnx.Module):
    """Copies of a decoder layer, one after the other."""

    def __init__(self, decoder_layer, num_layers, norm=None, *, rngs: nnx.Rngs):
        self.layers = nnx.List([clone_module(decoder_layer, rngs=rngs) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def __call__(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(nnx.Module):
    """Encoder and decoder of "Attention is all you need" (arXiv:1706.03762)."""

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation="relu",
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        *,
        rngs: nnx.Rngs,
    ):
        options = nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias
        if custom_encoder is None:
            layer = TransformerEncoderLayer(d_model, *options, rngs=rngs)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm, rngs=rngs)
        if custom_decoder is None:
            layer = TransformerDecoderLayer(d_model, *options, rngs=rngs)
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, norm, rngs=rngs)
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for _, parameter in named_parameters(self):
            if parameter.ndim > 1:
                parameter[...] = xavier_uniform(rngs.params(), parameter.shape)

    def __call__(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz):
        return generate_square_subsequent_mask(sz)
