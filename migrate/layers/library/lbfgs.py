"""L-BFGS as torch.optim has it."""

import math

import jax.numpy as jnp
from flax import nnx
from jax.flatten_util import ravel_pytree


class LBFGS:
    """torch's L-BFGS: up to max_iter steps in each call, controlled from the host."""

    def __init__(
        self,
        model,
        lr=1.0,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        self.model, self.lr, self.max_iter, self.history_size = model, float(lr), max_iter, history_size
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.line_search_fn = line_search_fn
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self.history, self.scale, self.direction, self.rate, self.last_grad = [], 1.0, None, None, None

    def step(self, loss_fn):
        """Minimise loss_fn(model); returns the loss before the first step."""
        first, grad = self._evaluate(loss_fn)
        loss = float(first)
        if jnp.abs(grad).max() <= self.tolerance_grad:
            return first
        evaluations = 1
        for turn in range(1, self.max_iter + 1):
            fresh = self.last_grad is None
            self.direction = self._next_direction(grad)
            self.last_grad, last_loss = grad, loss
            self.rate = min(1.0, 1.0 / float(jnp.abs(grad).sum())) * self.lr if fresh else self.lr
            slope = float(grad @ self.direction)
            if slope > -self.tolerance_change:
                break
            if self.line_search_fn is not None:
                start = (0.0, loss, grad, slope)
                loss, grad, used = self._search(loss_fn, start, self.max_eval - evaluations)
            else:
                self._move(self.rate * self.direction)
                if turn == self.max_iter:
                    break
                loss, grad = self._evaluate(loss_fn)
                used = 1
            loss, evaluations = float(loss), evaluations + used
            if turn == self.max_iter:
                break
            small = jnp.abs(self.rate * self.direction).max() <= self.tolerance_change
            done = jnp.abs(grad).max() <= self.tolerance_grad or abs(loss - last_loss) < self.tolerance_change
            if evaluations >= self.max_eval or done or small:
                break
        return first

    def _evaluate(self, loss_fn):
        loss, grads = nnx.value_and_grad(loss_fn)(self.model)
        return loss, ravel_pytree(grads)[0]

    def _move(self, step):
        params = nnx.state(self.model, nnx.Param)
        flat, unravel = ravel_pytree(params)
        nnx.update(self.model, unravel(flat + step))

    def _search(self, loss_fn, start, most):
        """Move as far along the direction as the strong Wolfe conditions ask."""
        params, direction = nnx.state(self.model, nnx.Param), self.direction
        flat, unravel = ravel_pytree(params)

        def evaluate(rate):
            nnx.update(self.model, unravel(flat + rate * direction))
            loss, grad = self._evaluate(loss_fn)
            return rate, float(loss), grad, float(grad @ direction)

        size = float(jnp.abs(direction).max())
        (self.rate, loss, grad, _), used = strong_wolfe(evaluate, start, self.rate, size, most)
        nnx.update(self.model, unravel(flat + self.rate * direction))
        return loss, grad, used

    def _next_direction(self, grad):
        if self.last_grad is None:
            return -grad
        y, s = grad - self.last_grad, self.rate * self.direction
        if y @ s > 1e-10:
            self.history = [*self.history, (y, s, 1.0 / (y @ s))][-self.history_size :]
            self.scale = (y @ s) / (y @ y)
        q, shares = -grad, []
        for y, s, rho in reversed(self.history):
            shares.append(s @ q * rho)
            q = q - shares[-1] * y
        r = q * self.scale
        for (y, s, rho), share in zip(self.history, reversed(shares), strict=True):
            r = r + s * (share - y @ r * rho)
        return r


def strong_wolfe(evaluate, start, rate, size, most, c1=1e-4, c2=0.9, tolerance=1e-9):
    """A point that meets the strong Wolfe conditions, and the evaluations it took: torch's search, after Nocedal and
    Wright, algorithms 3.5 and 3.6. A point is (rate, loss, gradient, slope); `size` is that of the direction."""
    _, loss, _, slope = start
    last, new = start, evaluate(rate)
    used, turns, bracket, done = 1, 0, None, False
    while bracket is None and turns < most:
        if new[1] > loss + c1 * new[0] * slope or (turns > 1 and new[1] >= last[1]):
            bracket = [last, new]
        elif abs(new[3]) <= -c2 * slope:
            bracket, done = [new], True
        elif new[3] >= 0:
            bracket = [last, new]
        else:
            bounds = new[0] + 0.01 * (new[0] - last[0]), new[0] * 10
            last, new = new, evaluate(cubic_minimum(last, new, bounds))
            used, turns = used + 1, turns + 1
    bracket = [start, new] if bracket is None else bracket
    low, high, stuck = *((0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)), False
    while not done and turns < most:
        ends = sorted(p[0] for p in bracket)
        if (ends[1] - ends[0]) * size < tolerance:
            break
        rate, margin = cubic_minimum(*bracket, ends), 0.1 * (ends[1] - ends[0])
        near = min(ends[1] - rate, rate - ends[0]) < margin
        if near and (stuck or rate >= ends[1] or rate <= ends[0]):
            rate = ends[1] - margin if abs(rate - ends[1]) < abs(rate - ends[0]) else ends[0] + margin
            near = False
        stuck, new = near, evaluate(rate)
        used, turns = used + 1, turns + 1
        if new[1] > loss + c1 * rate * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
            continue
        if abs(new[3]) <= -c2 * slope:
            done = True
        elif new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    return bracket[low], used


def cubic_minimum(one, other, bounds):
    """The minimum, between bounds, of the cubic through two points with their slopes."""
    (x1, f1, _, g1), (x2, f2, _, g2) = sorted((one, other), key=lambda p: p[0])
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0:
        return sum(bounds) / 2
    d2 = math.sqrt(square)
    return min(max(x2 - (x2 - x1) * (g2 + d2 - d1) / (g2 - g1 + 2 * d2), bounds[0]), bounds[1])
