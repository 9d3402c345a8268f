"""Functions with a gradient of their own."""

import jax
import numpy as np


class Context:
    """What `forward` keeps for `backward`: tensors, and any other attributes."""

    def __init__(self, count):
        self.saved_tensors, self.needs_input_grad = (), (True,) * count

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        pass

    def set_materialize_grads(self, value):
        pass


def _is_array(value):
    return isinstance(value, (jax.Array, np.ndarray))


class Function:
    """`apply` calls `forward(ctx, ...)`, and its gradient is what `backward(ctx, ...)` returns (jax.custom_vjp)."""

    @classmethod
    def apply(cls, *args):
        given = [i for i, arg in enumerate(args) if _is_array(arg)]
        other = {}  # what `forward` keeps that is no array: known when `backward` is traced

        def run(arrays):
            inputs = list(args)
            for i, array in zip(given, arrays, strict=True):
                inputs[i] = array
            ctx = Context(len(args))
            if not hasattr(cls, "setup_context"):
                return cls.forward(ctx, *inputs), ctx
            output = cls.forward(*inputs)
            cls.setup_context(ctx, tuple(inputs), output)
            return output, ctx

        @jax.custom_vjp
        def call(*arrays):
            return run(arrays)[0]

        def forward(*arrays):
            output, ctx = run(arrays)
            leaves, tree = jax.tree.flatten(vars(ctx))
            other["tree"], other["leaves"] = tree, [None if _is_array(leaf) else leaf for leaf in leaves]
            return output, [leaf for leaf in leaves if _is_array(leaf)]

        def backward(saved, cotangents):
            saved = iter(saved)
            leaves = [next(saved) if leaf is None else leaf for leaf in other["leaves"]]
            ctx = Context(len(args))
            vars(ctx).update(jax.tree.unflatten(other["tree"], leaves))
            gradients = cls.backward(ctx, *(cotangents if isinstance(cotangents, tuple) else (cotangents,)))
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            return tuple(gradients[i] for i in given)

        call.defvjp(forward, backward)
        return call(*(args[i] for i in given))


def written_over(old, new):
    """What torch.no_grad() writes into a parameter: the new value, with its gradient going to the parameter."""
    return jax.lax.stop_gradient(new) + (old - jax.lax.stop_gradient(old))
