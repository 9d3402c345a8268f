"""The command `weights`: checkpoints from PyTorch to the converted model and back, byte for byte.

`run_weights` is the entry; everything that imports torch, jax, safetensors or orbax does so when it is needed.
"""
