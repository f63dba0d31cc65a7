"""steelyard's rules inside another framework: arrays from clients in, the next model out.

Clients of Flower and NVFlare send dictionaries of numpy arrays. `merge` works on those;
docs/own_loop.md shows how to call it from either. Here plain functions take the place of the framework.

python examples/in_your_loop.py
"""

import numpy as np
from sklearn.datasets import load_digits

import steelyard as sy


def merge(model, sent, state, rule="majority"):
    """The next model, {client: weight}, and the rule's state; `sent` is {client: (arrays, count)}."""
    names = sorted(name for name, (arrays, count) in sent.items() if fits(arrays, count, model))
    keys = [key for key, array in model.items() if array.dtype.kind == "f"]  # without integer counters
    if not names:
        return model, {}, state
    before = np.concatenate([model[key].ravel() for key in keys])
    updates = [np.concatenate([sent[name][0][key].ravel() for key in keys]) - before for name in names]
    counts = [sent[name][1] for name in names]
    weighed = sy.weigh(updates, rule, clients=names, num_examples=counts, state=state)
    after = before + sy.combine(updates, weighed).mean.numpy()
    parts = np.split(after, np.cumsum([model[key].size for key in keys])[:-1])
    merged = {key: part.reshape(model[key].shape) for key, part in zip(keys, parts, strict=True)}
    return {**model, **merged}, dict(zip(names, weighed.weights.tolist(), strict=True)), weighed.state


def fits(arrays, count, model):
    """Whether a reply is well-formed. Weighing rules handle wrong values, not wrong shapes or NaN."""
    return (
        arrays.keys() == model.keys()
        and all(arrays[key].shape == model[key].shape for key in model)
        and all(arrays[key].dtype == model[key].dtype for key in model)
        and all(np.all(np.abs(arrays[key]) < 1e9) for key in model)  # also false for NaN
        and isinstance(count, int | float)
        and 0 < count < 1e9
    )


def train(model, x, y):
    """Local training of a client: here ten steps of softmax regression."""
    weight, bias = model["weight"].copy(), model["bias"].copy()
    for _ in range(10):
        scores = np.exp(x @ weight + bias)
        error = scores / scores.sum(axis=1, keepdims=True) - np.eye(10, dtype=np.float32)[y]
        weight -= 0.5 * x.T @ error / len(x)
        bias -= 0.5 * error.mean(axis=0)
    return {"weight": weight, "bias": bias}


def main():
    x, y = load_digits(return_X_y=True)
    x, order = (x / 16).astype(np.float32), np.random.default_rng(0).permutation(len(x))
    test, *parts = np.split(order, [300, 800, 1100, 1400, 1600])
    model = {"weight": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}
    state = None
    for number in range(1, 16):
        sent = {f"site-{i}": (train(model, x[rows], y[rows]), len(rows)) for i, rows in enumerate(parts)}
        learned, count = sent["site-2"]  # reverses its update, and claims a hundred times its examples
        sent["site-2"] = ({key: 2 * model[key] - array for key, array in learned.items()}, 100 * count)
        sent["site-4"] = ({"weight": np.ones(1, np.float32)}, 1)  # sends arrays of the wrong shape

        model, weights, state = merge(model, sent, state)

        accuracy = np.mean((x[test] @ model["weight"] + model["bias"]).argmax(axis=1) == y[test])
        if number % 5 == 0:
            shares = ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())
            print(f"round {number:2d}  accuracy {accuracy:.3f}  weights {shares}")


if __name__ == "__main__":
    main()
