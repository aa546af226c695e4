"""How much memory a work leaves taken, as torch's allocator counts it: what it takes less what it gives back."""

import gc
from collections.abc import Callable

from torch.autograd.profiler import profile


def held(work: Callable[[], object]) -> int:
    """Bytes of tensors that live on in what `work` returns; what it calls must be warm already."""
    # what earlier calls left must not be given back while this one is counted
    gc.collect()
    counting = profile(profile_memory=True)
    with counting:
        result = work()
        gc.collect()
    # only now: it had to live until the counting ended
    del result
    return sum(event.self_cpu_memory_usage for event in counting.function_events or ())
