"""Forward hooks: functions that run before or after each call of one module."""

import functools

from flax import nnx


class HookHandle:
    """What registering a hook returns: remove() takes the hook off the module again."""

    def __init__(self, module, name, hook):
        self.module, self.name, self.hook = module, name, hook

    def remove(self):
        hooks = getattr(self.module, self.name)
        setattr(self.module, self.name, tuple(hook for hook in hooks if hook is not self.hook))


class _Hooked(nnx.Module):
    """Put in front of a module's own class, for the module that has hooks only."""

    def __call__(self, *args, **kwargs):
        for hook, with_kwargs in self._forward_pre_hooks:
            result = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if result is not None and with_kwargs:
                args, kwargs = result
            elif result is not None:
                args = result if isinstance(result, tuple) else (result,)
        output = super().__call__(*args, **kwargs)
        for hook, with_kwargs in self._forward_hooks:
            result = hook(self, args, kwargs, output) if with_kwargs else hook(self, args, output)
            output = output if result is None else result
        return output


@functools.cache
def _hooked(cls):
    return type(cls.__name__, (_Hooked, cls), {})


def _register(module, name, hook, with_kwargs):
    if not isinstance(module, _Hooked):
        object.__setattr__(module, "__class__", _hooked(type(module)))
        module._forward_pre_hooks, module._forward_hooks = (), ()
    entry = (hook, with_kwargs)
    setattr(module, name, (*getattr(module, name), entry))
    return HookHandle(module, name, entry)


def register_forward_hook(module, hook, with_kwargs=False):
    """Call `hook(module, args, output)` after each call; what it returns, if not None, is the output.

    With with_kwargs it is `hook(module, args, kwargs, output)`. The hook runs while a jitted function is traced.
    """
    return _register(module, "_forward_hooks", hook, with_kwargs)


def register_forward_pre_hook(module, hook, with_kwargs=False):
    """Call `hook(module, args)` before each call; what it returns, if not None, takes the place of the arguments.

    With with_kwargs it is `hook(module, args, kwargs)` and returns both. It runs while a jitted function is traced.
    """
    return _register(module, "_forward_pre_hooks", hook, with_kwargs)
