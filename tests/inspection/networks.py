"""The feed-forward networks of a run's model, and what they read and gave, by hooks of PyTorch alone."""

import torch
from torch import Tensor, nn

from cutaway.inspection.runs import Run


def stack_of(read: Run) -> tuple[str, nn.ModuleList]:
    name = "decoder" if hasattr(read.model, "decoder") else "encoder"
    layers = read.model.get_submodule(name).get_submodule("layers")
    assert isinstance(layers, nn.ModuleList)
    return name, layers


def down_of(network: nn.Module) -> nn.Linear:
    down = network.get_submodule("down")
    assert isinstance(down, nn.Linear)
    return down


def recorded(read: Run, module: nn.Module) -> tuple[Tensor, Tensor]:
    """What a module read and gave in a plain pass, by a hook of PyTorch."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = module.register_forward_hook(lambda *called: seen.append((called[1][0], called[-1])))
    with torch.no_grad():
        read.model.hidden(**read.inputs)
    hook.remove()
    return seen[0]


def activations(network: nn.Module, x: Tensor) -> Tensor:
    """x (D,) -> (F,): what `down` reads when the network reads x."""
    seen: list[Tensor] = []
    hook = network.get_submodule("down").register_forward_hook(lambda _, args, __: seen.append(args[0]))
    with torch.no_grad():
        network(x[None, None])
    hook.remove()
    return seen[0][0, 0]
