import jax.numpy as jnp
import optax
from flax import nnx


class Classifier(nnx.Module):
    def __init__(self, words, width, classes, *, rngs: nnx.Rngs):
        self.embedding = nnx.Embed(words, width, rngs=rngs)
        self.lstm = nnx.RNN(nnx.OptimizedLSTMCell(width, width, rngs=rngs), return_carry=True)
        self.fc = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, tokens):
        (_, hidden), _ = self.lstm(self.embedding(tokens))
        return self.fc(hidden)


def fit(model: Classifier, loader):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-3, weight_decay=1e-2))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, tokens, label):
        def loss_fn(model):
            output = model(tokens)
            return optax.softmax_cross_entropy_with_integer_labels(output, label).mean(), output

        (loss, output), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
        optimizer.update(model, grads)
        return loss, output

    losses, correct = [], 0
    for tokens, label in loader:
        loss, output = train_step(model, optimizer, tokens, label)
        losses.append(loss.item())
        correct += (jnp.argmax(output, 1) == label).sum().item()
    return losses, correct
