"""A hand-written PyTorch loop without a framework: floats in memory, both cores by threads."""

import copy
import time

from torch import nn

from contenders.setting import argument, evaluate, read, say_round, train


def main() -> None:
    setting = read(argument())
    tables = {client: setting.client(client) for client in setting.invited}
    test = setting.test()
    model = setting.model()
    for number, cohort in enumerate(setting.cohorts, 1):
        start = time.perf_counter()
        locals_ = []
        for client in cohort:
            locals_.append(copy.deepcopy(model))
            train(locals_[-1], tables[client], setting.training, setting.order(number, client))
        merge(model, locals_, [len(tables[client][1]) for client in cohort])
        accuracy = evaluate(model, test) if setting.evaluates else None
        say_round(number, time.perf_counter() - start, accuracy)


def merge(model: nn.Module, locals_: list[nn.Module], counts: list[int]) -> None:
    """Load the mean of the clients' models, weighted by their examples, into the model."""
    states = [local.state_dict() for local in locals_]
    shares = [count / sum(counts) for count in counts]
    merged = {
        name: sum(state[name] * share for state, share in zip(states, shares, strict=True))
        for name in states[0]
    }
    model.load_state_dict(merged)


if __name__ == "__main__":
    main()
