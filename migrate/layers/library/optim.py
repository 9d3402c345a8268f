"""Gradient transformations and learning rates of torch.optim for which optax has no exact equal."""

import math

import jax
import jax.numpy as jnp
import optax
from flax import nnx


def clip_grad_norm(grads, max_norm):
    """The gradients scaled so that their joint 2-norm is at most max_norm, and the norm that they had."""
    total = optax.global_norm(grads)
    scale = jnp.minimum(max_norm / (total + 1e-6), 1.0)
    return jax.tree.map(lambda g: g * scale, grads), total


def trace_with_dampening(momentum, dampening, nesterov=False):
    """Momentum of SGD with dampening: the first step stores g, later ones momentum * buffer + (1 - dampening) * g."""

    if not momentum:
        return optax.identity()

    def init(params):
        return jnp.zeros((), jnp.int32), optax.tree.zeros_like(params)

    def update(grads, state, params=None):
        count, buffer = state
        share = jnp.where(count == 0, 1.0, 1.0 - dampening)
        buffer = jax.tree.map(lambda b, g: momentum * b + share * g, buffer, grads)
        updates = jax.tree.map(lambda g, b: g + momentum * b, grads, buffer) if nesterov else buffer
        return updates, (count + 1, buffer)

    return optax.GradientTransformation(init, update)


def scale_by_amsgrad(b1=0.9, b2=0.999, eps=1e-8):
    """AMSGrad with the maximum taken over the second moments before their bias is corrected."""

    def init(params):
        zeros = optax.tree.zeros_like
        return jnp.zeros((), jnp.int32), zeros(params), zeros(params), zeros(params)

    def update(grads, state, params=None):
        count, mu, nu, nu_max = state
        count = count + 1
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, mu, grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, nu, grads)
        nu_max = jax.tree.map(jnp.maximum, nu_max, nu)
        c1, c2 = 1 - b1**count, 1 - b2**count
        updates = jax.tree.map(lambda m, v: (m / c1) / (jnp.sqrt(v / c2) + eps), mu, nu_max)
        return updates, (count, mu, nu, nu_max)

    return optax.GradientTransformation(init, update)


def scale_by_adagrad(lr_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
    """Adagrad with a decaying rate, and eps outside of the root."""

    def init(params):
        return jnp.zeros((), jnp.int32), optax.tree.full_like(params, initial_accumulator_value)

    def update(grads, state, params=None):
        count, total = state
        total = jax.tree.map(lambda s, g: s + g * g, total, grads)
        updates = jax.tree.map(lambda g, s: g / (1 + count * lr_decay) / (jnp.sqrt(s) + eps), grads, total)
        return updates, (count + 1, total)

    return optax.GradientTransformation(init, update)


def scale_by_nadam(b1=0.9, b2=0.999, eps=1e-8, momentum_decay=4e-3):
    """NAdam with the momentum schedule of Dozat (2016)."""

    def init(params):
        return jnp.zeros((), jnp.int32), jnp.ones(()), optax.tree.zeros_like(params), optax.tree.zeros_like(params)

    def update(grads, state, params=None):
        count, product, m, v = state
        count = count + 1
        now = b1 * (1 - 0.5 * 0.96 ** (count * momentum_decay))
        later = b1 * (1 - 0.5 * 0.96 ** ((count + 1) * momentum_decay))
        product = product * now
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        c2 = 1 - b2**count

        def leaf(g, m, v):
            step = g * (1 - now) / (1 - product) + m * later / (1 - product * later)
            return step / (jnp.sqrt(v / c2) + eps)

        return jax.tree.map(leaf, grads, m, v), (count, product, m, v)

    return optax.GradientTransformation(init, update)


def scale_by_radam(b1=0.9, b2=0.999, eps=1e-8):
    """RAdam with eps added before the bias of the second moment is corrected."""
    rho_inf = 2 / (1 - b2) - 1

    def init(params):
        return jnp.zeros((), jnp.int32), optax.tree.zeros_like(params), optax.tree.zeros_like(params)

    def update(grads, state, params=None):
        count, m, v = state
        count = count + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
        c1, c2 = 1 - b1**count, -jnp.expm1(count * math.log(b2))  # rho is a difference of near equals
        rho = rho_inf - 2 * count * b2**count / c2
        safe = jnp.maximum(rho, 5.0)
        rect = jnp.sqrt((safe - 4) * (safe - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * safe))

        def leaf(m, v):
            return m / c1 * jnp.where(rho > 5, rect * jnp.sqrt(c2) / (jnp.sqrt(v) + eps), 1.0)

        return jax.tree.map(leaf, m, v), (count, m, v)

    return optax.GradientTransformation(init, update)


def rprop(learning_rate=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)):
    """Resilient backpropagation; a weight whose gradient changed its sign rests for one step."""

    def init(params):
        return optax.tree.zeros_like(params), optax.tree.full_like(params, learning_rate)

    def update(grads, state, params=None):
        previous, steps = state
        agree = jax.tree.map(lambda g, p: jnp.sign(g * p), grads, previous)
        factor = jax.tree.map(lambda a: jnp.where(a > 0, etas[1], jnp.where(a < 0, etas[0], 1.0)), agree)
        steps = jax.tree.map(lambda s, f: jnp.clip(s * f, *step_sizes), steps, factor)
        grads = jax.tree.map(lambda a, g: jnp.where(a < 0, 0.0, g), agree, grads)
        return jax.tree.map(lambda g, s: -jnp.sign(g) * s, grads, steps), (grads, steps)

    return optax.GradientTransformation(init, update)


def asgd(learning_rate=1e-2, lambd=1e-4, alpha=0.75, t0=1e6):
    """Averaged SGD; the last part of its state is the average of the parameters."""

    def init(params):
        return jnp.zeros((), jnp.int32), jnp.asarray(learning_rate), jnp.ones(()), optax.tree.zeros_like(params)

    def update(grads, state, params):
        count, eta, mu, average = state
        count = count + 1
        updates = jax.tree.map(lambda g, p: -lambd * eta * p - eta * g, grads, params)
        average = jax.tree.map(lambda a, p, u: a + (p + u - a) * mu, average, params, updates)
        eta = learning_rate / (1 + lambd * learning_rate * count) ** alpha
        mu = 1 / jnp.maximum(1.0, count - t0)
        return updates, (count, eta, mu, average)

    return optax.GradientTransformation(init, update)


def adafactor(learning_rate=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0):
    """Adafactor as torch.optim has it; eps[0] None is the machine epsilon."""

    def init(params):
        rows = jax.tree.map(lambda p: jnp.zeros((*p.shape[:-1], 1)) if p.ndim > 1 else jnp.zeros_like(p), params)
        columns = jax.tree.map(
            lambda p: jnp.zeros((*p.shape[:-2], 1, p.shape[-1])) if p.ndim > 1 else jnp.zeros(()), params
        )
        return jnp.zeros((), jnp.int32), rows, columns

    def update(grads, state, params):
        count, rows, columns = state
        count = count + 1
        time = count.astype(jnp.float32)
        weight, rho = time**beta2_decay, jnp.minimum(learning_rate, 1 / jnp.sqrt(time))
        rows = jax.tree.map(lambda r, g: r + weight * (_mean_square(g, -1) - r), rows, grads)
        columns = jax.tree.map(lambda c, g: c + weight * (_mean_square(g, -2) - c) if g.ndim > 1 else c, columns, grads)

        def leaf(g, p, r, c):
            least = jnp.finfo(p.dtype).eps if eps[0] is None else eps[0]
            var = (r @ c) / jnp.maximum(r.mean(-2, keepdims=True), least) if g.ndim > 1 else r
            step = g * jax.lax.rsqrt(jnp.maximum(var, least**2))
            alpha = jnp.maximum(eps[1], jnp.sqrt(jnp.mean(p * p))) * rho
            return -learning_rate * weight_decay * p - alpha / jnp.maximum(1, jnp.sqrt(jnp.mean(step**2)) / d) * step

        return jax.tree.map(leaf, grads, params, rows, columns), (count, rows, columns)

    return optax.GradientTransformation(init, update)


def _mean_square(x, axis):
    return jnp.square(x).mean(axis, keepdims=True) if x.ndim > 1 else jnp.square(x)


def muon(
    learning_rate=1e-3,
    weight_decay=0.1,
    momentum=0.95,
    nesterov=True,
    ns_coefficients=(3.4445, -4.775, 2.0315),
    eps=1e-7,
    ns_steps=5,
    adjust_lr_fn=None,
):
    """Muon for matrices: momentum, made orthogonal by Newton-Schulz steps in bfloat16 (Jordan et al., 2024)."""
    a, b, c = ns_coefficients

    def product(scale, x, y, bias):
        dot = jnp.matmul(x, y, preferred_element_type=jnp.float32)
        return (bias.astype(jnp.float32) + scale * dot).astype(jnp.bfloat16)

    def orthogonal(g):
        tall = g.shape[0] > g.shape[1]
        x = (g.T if tall else g).astype(jnp.bfloat16)
        norm = jnp.sqrt(jnp.sum(jnp.square(x.astype(jnp.float32)))).astype(jnp.bfloat16)
        x = x / jnp.maximum(norm, eps).astype(jnp.bfloat16)
        for _ in range(ns_steps):
            gram = x @ x.T
            x = product(1.0, product(c, gram, gram, b * gram.astype(jnp.float32)), x, a * x.astype(jnp.float32))
        return (x.T if tall else x).astype(g.dtype)

    def ratio(rows, columns):
        if adjust_lr_fn == "match_rms_adamw":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, rows / columns))

    def update(grads, buffer, params):
        buffer = jax.tree.map(lambda m, g: m + (1 - momentum) * (g - m), buffer, grads)
        ahead = jax.tree.map(lambda m, g: g + momentum * (m - g), buffer, grads) if nesterov else buffer

        def leaf(u, p):
            return -learning_rate * weight_decay * p - learning_rate * ratio(*p.shape) * orthogonal(u)

        return jax.tree.map(leaf, ahead, params), buffer

    return optax.GradientTransformation(optax.tree.zeros_like, update)


def label_parameters(model, **groups):
    """The name of the group that holds each parameter, "frozen" for the others: labels for optax.partition."""
    names = {id(p): name for name, group in groups.items() for p in group}
    variables = jax.tree.leaves(nnx.state(model, nnx.Param), is_leaf=lambda x: isinstance(x, nnx.Variable))
    labels = [names.get(id(v), "frozen") for v in variables]
    return lambda params: jax.tree.unflatten(jax.tree.structure(params), labels)


def module_vjp(forward, module):
    """forward(module), and a function from the gradient of that value to the gradients of the module's parameters.

    The rest of the module's state (running averages, random streams) moves on once, as in a plain call.
    """
    graphdef, params, rest = nnx.split(module, nnx.Param, ...)

    def pure(params):
        module = nnx.merge(graphdef, params, jax.tree.map(lambda x: x, rest))  # variables of this trace
        value = forward(module)
        return value, nnx.state(module, nnx.Not(nnx.Param))

    value, pull_back, rest_after = jax.vjp(pure, params, has_aux=True)
    nnx.update(module, rest_after)
    return value, lambda grad: pull_back(grad)[0]


def cosine_annealing_schedule(init_value, T_max, eta_min=0.0):
    """CosineAnnealingLR: from init_value to eta_min in T_max steps, and up again after that."""
    return lambda step: eta_min + (init_value - eta_min) * (1 + jnp.cos(jnp.pi * step / T_max)) / 2


def warm_restarts_schedule(init_value, T_0, T_mult=1, eta_min=0.0):
    """CosineAnnealingWarmRestarts: cosine periods of T_0, T_0 * T_mult, T_0 * T_mult**2, … steps."""

    def schedule(step):
        if T_mult == 1:
            share = step % T_0 / T_0
        else:  # half a step more keeps the logarithm away from the ends of periods
            n = jnp.floor(jnp.log((step + 0.5) * (T_mult - 1) / T_0 + 1) / math.log(T_mult))
            share = (step - T_0 * (T_mult**n - 1) / (T_mult - 1)) / (T_0 * T_mult**n)
        return eta_min + (init_value - eta_min) * (1 + jnp.cos(jnp.pi * share)) / 2

    return schedule


def one_cycle_schedule(
    max_lr, total_steps, pct_start=0.3, anneal_strategy="cos", div_factor=25.0, final_div_factor=1e4
):
    """OneCycleLR: up from max_lr / div_factor to max_lr, then down to the first value / final_div_factor."""
    first = max_lr / div_factor
    return one_cycle(first, max_lr, first / final_div_factor, total_steps, pct_start, anneal_strategy)


def one_cycle(first, top, last, total_steps, pct_start=0.3, anneal_strategy="cos"):
    """From the first value to the top in pct_start of the steps, and to the last in the rest."""
    turn = pct_start * total_steps - 1

    def between(start, end, share):
        share = share if anneal_strategy == "linear" else (1 - jnp.cos(jnp.pi * share)) / 2
        return start + (end - start) * share

    def schedule(step):
        up = between(first, top, step / turn)
        down = between(top, last, (step - turn) / (total_steps - 1 - turn))
        return jnp.where(step <= turn, up, down)

    return schedule


def cyclic_schedule(base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0):
    """CyclicLR: a triangle between two rates, of constant height, halved each cycle, or times gamma**step."""
    total = step_size_up + (step_size_up if step_size_down is None else step_size_down)
    turn = step_size_up / total

    def schedule(step):
        cycle = jnp.floor(step / total)
        x = step / total - cycle
        height = 0.5**cycle if mode == "triangular2" else gamma**step if mode == "exp_range" else 1.0
        return base_lr + (max_lr - base_lr) * height * jnp.where(x <= turn, x / turn, (1 - x) / (1 - turn))

    return schedule


def multiplicative_schedule(init_value, factor):
    """MultiplicativeLR: each step times factor(step). For a step that is a Python number, outside of jit."""
    return lambda step: init_value * math.prod(factor(t) for t in range(1, int(step) + 1))


class LRScheduler:
    """Sets the learning rate of an nnx.Optimizer over optax.inject_hyperparams, as a schedule or a plateau has it."""

    def __init__(self, optimizer, schedule):
        self.optimizer, self.schedule, self.last_epoch = optimizer, schedule, 0
        if not isinstance(schedule, ReduceLROnPlateau):
            self._set(schedule(0))

    def step(self, *metric):
        """Go to the next rate: by the count, or by the metric of an epoch."""
        self.last_epoch += 1
        self._set(self.schedule.step(*metric) if metric else self.schedule(self.last_epoch))

    def get_last_lr(self):
        return [self.optimizer.opt_state.hyperparams["learning_rate"].item()]

    def state_dict(self):
        state = {"last_epoch": self.last_epoch, "lr": self.get_last_lr()[0]}
        return state | ({"plateau": vars(self.schedule)} if isinstance(self.schedule, ReduceLROnPlateau) else {})

    def load_state_dict(self, state):
        self.last_epoch = state["last_epoch"]
        vars(self.schedule).update(state.get("plateau", {}))
        self._set(state["lr"])

    def _set(self, rate):
        self.optimizer.opt_state.hyperparams["learning_rate"][...] = jnp.asarray(rate, jnp.float32)


class ReduceLROnPlateau:
    """Lowers a learning rate when a metric has stopped to improve: `lr = plateau.step(metric)`, outside of jit."""

    def __init__(
        self,
        lr,
        mode="min",
        factor=0.1,
        patience=10,
        threshold=1e-4,
        threshold_mode="rel",
        cooldown=0,
        min_lr=0.0,
        eps=1e-8,
    ):
        self.lr, self.mode, self.factor, self.patience = lr, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.min_lr, self.eps = (
            threshold,
            threshold_mode,
            cooldown,
            min_lr,
            eps,
        )
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0

    def step(self, metric):
        """Take the metric of an epoch and return the learning rate for the next."""
        if self._better(float(metric)):
            self.best, self.num_bad_epochs = float(metric), 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            lower = max(self.lr * self.factor, self.min_lr)
            self.lr = lower if self.lr - lower > self.eps else self.lr
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        return self.lr

    def _better(self, metric):
        sign = 1 if self.mode == "max" else -1
        relative = self.threshold_mode == "rel"
        bar = self.best * (1 + sign * self.threshold) if relative else self.best + sign * self.threshold
        return metric > bar if self.mode == "max" else metric < bar
