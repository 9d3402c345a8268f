import optax
from flax import nnx


class Block(nnx.Module):
    def __init__(self, inside, outside, stride, *, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(inside, outside, (3, 3), stride, padding=1, use_bias=False, rngs=rngs)
        self.bn1 = nnx.BatchNorm(outside, momentum=0.9, rngs=rngs)
        self.conv2 = nnx.Conv(outside, outside, (3, 3), 1, padding=1, use_bias=False, rngs=rngs)
        self.bn2 = nnx.BatchNorm(outside, momentum=0.9, rngs=rngs)
        self.shortcut = nnx.Conv(inside, outside, (1, 1), stride, padding=0, use_bias=False, rngs=rngs)

    def __call__(self, x):
        out = nnx.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return nnx.relu(out + self.shortcut(x))


class ResNet(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.stem = nnx.Conv(3, 16, (3, 3), 1, padding=1, rngs=rngs)
        self.blocks = nnx.List([Block(16, 16, 1, rngs=rngs), Block(16, 32, 2, rngs=rngs), Block(32, 64, 2, rngs=rngs)])
        self.fc = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x.transpose(0, 2, 3, 1)))
        for block in self.blocks:
            x = block(x)
        return self.fc(x.mean((1, 2)))


def fit(model: ResNet, loader, epochs):
    schedule = optax.cosine_decay_schedule(0.05, 1000)
    tx = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(schedule, momentum=0.9))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, x, y):
        def loss_fn(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return loss

    history = []
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            loss = train_step(model, optimizer, x, y)
            history.append(loss.item())
    return history
