"""Wrong defaults and slips of a port, to be put into the golden conversions one at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parents[1] / "golden" / "modules"
EXAMPLES = {
    "01_mlp": "MLP(6, 8, 3)(f32[8, 3, 2])",
    "02_resnet": "ResNet(BasicBlock, [1, 1], width=4)(f32[2, 3, 24, 24])",
    "03_gpt": "GPT(GPTConfig(n_layer=1, n_embd=16))(i64[2, 12] < 65, targets=-1 <= i64[2, 12] < 5)",
    "04_lstm": "LSTMClassifier(20, 8, 6, 4)(i64[4, 9] < 6)",
    "05_unet": "UNet(features=(8,))(f32[2, 3, 9, 7])",
    "06_vit": "VisionTransformer(depth=2, embed_dim=16)(f32[2, 3, 32, 32])",
}


@dataclass(frozen=True)
class Slip:
    """`old` becomes `new` in a file of a golden conversion; `stage` is the first stage that must not be equal."""

    name: str
    module: str
    stage: str
    old: str
    new: str
    file: str = "jax_out.py"


LAYERS = "nnx_layers.py"
SLIPS = [
    Slip("slope of leaky_relu", "01_mlp", "forward eval", "negative_slope=0.1", "negative_slope=0.01"),
    Slip("scale dropped", "01_mlp", "forward eval", " * self.scale[...]", ""),
    Slip("exp dropped", "01_mlp", "forward eval", "jnp.exp(self.temperature[...])", "self.temperature[...]"),
    Slip("dropout dropped", "01_mlp", "dropout", "nnx.Dropout(p_drop, rngs=rngs)]", "lambda x: x]"),
    Slip("another drop rate", "01_mlp", "dropout", "nnx.Dropout(p_drop", "nnx.Dropout(5 * p_drop"),
    Slip("buffer became a parameter", "01_mlp", "interface", "self.scale = Buffer(", "self.scale = nnx.Param("),
    Slip("batch norm momentum", "01_mlp", "buffers train", "momentum=0.1", "momentum=0.9", LAYERS),
    Slip("batch norm epsilon", "01_mlp", "forward eval", "eps=1e-5, momentum", "eps=1e-3, momentum", LAYERS),
    Slip("running variance biased", "01_mlp", "buffers train", "var * (n / (n - 1))", "var", LAYERS),
    Slip("batch variance unbiased", "01_mlp", "forward train", ".mean(axes)\n            if", LAYERS, LAYERS),
    Slip("forgotten buffer update", "01_mlp", "buffers train", "self.running_mean[...] = ", "_ = ", LAYERS),
    Slip("forgotten batch count", "01_mlp", "buffers train", "self.num_batches_tracked[...] += 1", "pass", LAYERS),
    Slip("no gradient through the mean", "01_mlp", "gradient train", "mean = x.mean(axes)", LAYERS, LAYERS),
    Slip("train and eval swapped", "01_mlp", "forward eval", "if self.use_running", "if not self.use_running", LAYERS),
    Slip("padding of the pool", "02_resnet", "forward eval", "stride=2, padding=1)", "stride=2)"),
    Slip("wrong sign", "02_resnet", "forward eval", "out + identity", "out - identity"),
    Slip("max for mean", "02_resnet", "forward eval", "x.mean((2, 3)", "x.max((2, 3)"),
    Slip("last activation dropped", "02_resnet", "forward eval", "return nnx.relu(out)", "return out"),
    Slip("bias not switched off", "02_resnet", "interface", "padding=1, bias=False", "padding=1"),
    Slip("attention scale dropped", "03_gpt", "forward eval", " * (1.0 / math.sqrt(k.shape[-1]))", ""),
    Slip("mask inverted", "03_gpt", "forward eval", ":T, :T] == 0", ":T, :T] != 0"),
    Slip("queries and keys swapped", "03_gpt", "forward eval", "q, k, v = jnp.split", "k, q, v = jnp.split"),
    Slip("tanh form of GELU", "03_gpt", "gradient eval", "            gelu,", "            nnx.gelu,"),
    Slip("softmax over another axis", "03_gpt", "forward eval", "softmax(att, axis=-1)", "softmax(att, axis=-2)"),
    Slip("ignore_index dropped", "03_gpt", "forward eval", ", ignore_index=-1)", ")"),
    Slip("weights not tied", "03_gpt", "gradient eval", "self.transformer.wte.weight = self.lm_head.weight", "pass"),
    Slip("layer norm epsilon", "03_gpt", "forward eval", "eps=1e-5, elementwise", "eps=1e-6, elementwise", LAYERS),
    Slip("square weight not transposed", "03_gpt", "forward eval", "self.weight[...].T", LAYERS, LAYERS),
    Slip("order of gates", "04_lstm", "forward eval", "i, f, g, o = ", "i, g, f, o = ", LAYERS),
    Slip("second bias dropped", "04_lstm", "forward eval", "get('bias_hh') if self.use_bias else 0", "0", LAYERS),
    Slip("directions swapped", "04_lstm", "forward eval", "[h[-2], h[-1], context]", "[h[-1], h[-2], context]"),
    Slip("gradient of the padding row", "04_lstm", "gradient eval", "lax.stop_gradient(out), out", "out, out", LAYERS),
    Slip("padding mode", "05_unet", "forward eval", ', padding_mode="reflect"', ""),
    Slip("order of concatenation", "05_unet", "forward eval", "[skip, x]", "[x, skip]"),
    Slip("another activation", "05_unet", "forward eval", "nnx.silu", "nnx.relu"),
    Slip("group norm epsilon", "05_unet", "forward eval", "num_channels, eps=1e-5", "num_channels, eps=1e-3", LAYERS),
    Slip("another token", "06_vit", "forward eval", "x[:, 0]", "x[:, 1]"),
    Slip("layer scale dropped", "06_vit", "forward eval", "y = self.gamma[...] * y", "pass"),
    Slip("layer norm epsilon not passed on", "06_vit", "forward eval", "partial(LayerNorm, eps=1e-6)", "LayerNorm"),
    Slip("stochastic depth off", "06_vit", "dropout", "not self.deterministic", "False"),
    Slip("the same mask each time", "06_vit", "dropout", "bernoulli(rngs()", "bernoulli(jax.random.key(3)"),
]
# Edits whose new text does not fit above.
LONG = {
    "batch variance unbiased": ".sum(axes) / (x.size // x.shape[1] - 1)\n            if",
    "no gradient through the mean": "mean = lax.stop_gradient(x.mean(axes))",
    "square weight not transposed": "(self.weight[...] if len({*self.weight.shape}) == 1 else self.weight[...].T)",
}

# What verify must name, by torch's names, where the change is not a statement that both programs have.
PLACES = {
    "dropout dropped": "body.3: ",
    "another drop rate": "body.3: ",
    "layer scale dropped": "(Block)",
    "wrong sign": "(BasicBlock)",
    "slope of leaky_relu": "body (Sequential)",
    "buffer became a parameter": "scale",
    "batch norm momentum": "running_mean",
    "batch norm epsilon": "(BatchNorm1d)",
    "running variance biased": "running_var",
    "batch variance unbiased": "(BatchNorm1d)",
    "forgotten buffer update": "running_mean",
    "forgotten batch count": "num_batches_tracked",
    "no gradient through the mean": "body.1.",
    "train and eval swapped": "(BatchNorm1d)",
    "bias not switched off": "conv1.bias",
    "tanh form of GELU": "h.0.mlp.",
    "weights not tied": "wte.weight",
    "layer norm epsilon": "(LayerNorm)",
    "square weight not transposed": "(Linear)",
    "order of gates": "self.lstm(",
    "second bias dropped": "self.lstm(",
    "gradient of the padding row": "embedding.weight",
    "padding mode": "(Conv2d)",
    "another activation": "(DoubleConv)",
    "group norm epsilon": "(GroupNorm)",
    "layer norm epsilon not passed on": "(LayerNorm)",
}


def write_slip(slip: Slip, folder: Path) -> Path:
    """A copy of the golden conversion with the slip in it."""
    folder.mkdir()
    for name in ("jax_out.py", LAYERS):
        text = (MODULES / slip.module / name).read_text(encoding="utf-8")
        if name == slip.file:
            assert slip.old in text, f"{slip.name}: the text to be changed is not there"
            text = text.replace(slip.old, LONG.get(slip.name, slip.new))
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "jax_out.py"
