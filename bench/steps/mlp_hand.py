import optax
from flax import nnx


class MLP(nnx.Module):
    def __init__(self, width, depth, *, rngs: nnx.Rngs):
        layers = []
        for _ in range(depth):
            layers += [
                nnx.Linear(width, width, rngs=rngs),
                nnx.BatchNorm(width, momentum=0.9, rngs=rngs),
                nnx.relu,
                nnx.Dropout(0.1, rngs=rngs),
            ]
        self.body = nnx.Sequential(*layers)
        self.head = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(self.body(x))


@nnx.jit
def train_step(model, optimizer, x, y):
    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = train_step(model, optimizer, x, y)
        total += loss.item()
    return total
