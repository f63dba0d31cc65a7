"""Partitions: how training rows are divided among clients, from equal shares to one class per client."""

import numpy as np
import torch
from torch import Tensor

from steelyard.errors import InputError

__all__ = ["classes", "dirichlet", "iid", "natural", "quantity", "shards"]


def iid(labels: Tensor, clients: int, generator: torch.Generator) -> list[Tensor]:
    """Every client gets an equal random share of all rows, so all have nearly the same label mix."""
    _check_rows(len(labels), clients)
    return _sorted(torch.randperm(len(labels), generator=generator).tensor_split(clients))


def shards(
    labels: Tensor, clients: int, generator: torch.Generator, *, shards: int = 300, per_client: int = 2
) -> list[Tensor]:
    """Sort rows by label, cut them into shards, give `per_client` to each client: few classes, equal sizes.

    The scheme of McMahan et al. (2017). Shards that are left over are not used.
    """
    _check_rows(len(labels), clients)
    _at_least_one("per_client", per_client)
    if shards < clients * per_client:
        raise InputError(
            f"{clients} clients with {per_client} shards each need {clients * per_client} shards, but there "
            f"are {shards}: raise shards, lower per_client or take fewer clients."
        )
    if shards > len(labels):
        raise InputError(f"{len(labels)} rows cannot be cut into {shards} shards: lower shards.")
    pieces = _class_ids(labels).argsort(stable=True).tensor_split(shards)
    drawn = torch.randperm(shards, generator=generator)[: clients * per_client].view(clients, per_client)
    return _sorted([torch.cat([pieces[shard] for shard in own]) for own in drawn.tolist()])


def dirichlet(
    labels: Tensor, clients: int, generator: torch.Generator, *, alpha: float = 0.3, min_size: int = 1
) -> list[Tensor]:
    """Divide each class in proportions drawn from Dir(alpha): 0.1 is a severe label skew, 100 almost iid.

    Clients with fewer than `min_size` rows get rows of the largest clients.
    """
    _check_rows(len(labels), clients, min_size)
    ids = _class_ids(labels)
    totals = ids.bincount()
    parts = _deal(ids, _apportion(_proportions(len(totals), clients, alpha, generator), totals), generator)
    return _sorted(_top_up(parts, min_size, generator))


def classes(labels: Tensor, clients: int, generator: torch.Generator, *, per_client: int = 2) -> list[Tensor]:
    """Every client has `per_client` classes; the rows of a class are split evenly among its clients.

    If clients × per_client < classes, the remaining classes are not used. A client has fewer classes only if
    a class has fewer rows than clients.
    """
    _check_rows(len(labels), clients)
    _at_least_one("per_client", per_client)
    ids = _class_ids(labels)
    totals = ids.bincount()
    if per_client > len(totals):
        raise InputError(
            f"per_client is {per_client}, but there are {len(totals)} classes: lower per_client."
        )
    assigned = _assign_classes(totals, clients, per_client, generator)
    holders = assigned.sum(dim=0, keepdim=True).clamp(min=1)
    # Of h clients with a class of n rows, each gets ⌊n/h⌋ rows, and the first n mod h get one more.
    share = totals // holders + (assigned.cumsum(dim=0) <= totals % holders)
    parts = _deal(ids, (share * assigned).T, generator)
    return _sorted(_top_up(parts, 1, generator))


def quantity(
    labels: Tensor, clients: int, generator: torch.Generator, *, alpha: float = 0.5, min_size: int = 1
) -> list[Tensor]:
    """Clients have the same label mix but unequal sizes, drawn from Dir(alpha)."""
    rows = len(labels)
    _check_rows(rows, clients, min_size)
    drawn = _apportion(_proportions(1, clients, alpha, generator), torch.tensor([rows]))[0]
    sizes = _levelled(drawn, min_size).tolist()
    return _sorted(torch.split(torch.randperm(rows, generator=generator), sizes))


def natural(groups: Tensor | None, clients: int, generator: torch.Generator) -> list[Tensor]:
    """One client per group that produced data (a speaking role, a hospital), largest groups first."""
    if groups is None:
        raise InputError("this data set has no groups, which natural needs: choose another partition.")
    _check_rows(len(groups), clients)
    ids = _class_ids(groups)
    sizes = ids.bincount()
    if clients > len(sizes):
        raise InputError(
            f"{clients} clients need as many groups, but there are {len(sizes)}: take fewer clients."
        )
    by_group = torch.split(ids.argsort(stable=True), sizes.tolist())
    largest = sizes.argsort(descending=True, stable=True)[:clients]
    return _sorted([by_group[group] for group in largest.tolist()])


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, not {value}.")


def _check_rows(rows: int, clients: int, min_size: int = 1) -> None:
    _at_least_one("clients", clients)
    _at_least_one("min_size", min_size)
    if rows < clients * min_size:
        need = f"{clients} clients with at least {min_size} each need {clients * min_size} rows"
        advice = "take fewer clients" + " or a smaller min_size" * (min_size > 1)
        raise InputError(f"{need}, but there are {rows}: {advice}.")


def _class_ids(labels: Tensor) -> Tensor:
    """The labels renumbered 0, 1, 2, …, so that no class is empty."""
    if labels.dim() != 1 or labels.is_floating_point():
        raise InputError(
            f"this partition needs one whole-number label per row, not {labels.dtype} of shape "
            f"{tuple(labels.shape)}: choose iid or quantity."
        )
    ids: Tensor = torch.unique(labels, return_inverse=True)[1]
    return ids


def _sorted(parts: list[Tensor] | tuple[Tensor, ...]) -> list[Tensor]:
    return [part.sort().values for part in parts]


def _proportions(draws: int, clients: int, alpha: float, generator: torch.Generator) -> Tensor:
    """Vectors from a symmetric Dirichlet distribution, [draws, clients]."""
    if not 1e-6 <= alpha <= 1e6:
        raise InputError(
            f"alpha must be between 1e-6 (one client gets all) and 1e6 (equal shares), not {alpha}."
        )
    source = np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator)))
    # Gamma(a) = Gamma(a + 1) · U^(1/a), in logarithms, because gamma draws underflow for a small alpha.
    log_gamma = np.log(source.standard_gamma(alpha + 1, (draws, clients)))
    log_gamma -= source.standard_exponential((draws, clients)) / alpha
    return torch.from_numpy(log_gamma).softmax(dim=1)


def _apportion(proportions: Tensor, totals: Tensor) -> Tensor:
    """Integers close to `proportions` × `totals`, with rows that sum to `totals`."""
    cuts = (proportions.cumsum(dim=1) * totals[:, None]).round().long()
    return cuts.diff(dim=1, prepend=torch.zeros_like(cuts[:, :1]))


def _deal(ids: Tensor, counts: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Give client j `counts[c, j]` random rows of class c."""
    clients = counts.shape[1]
    shuffled = torch.randperm(len(ids), generator=generator)
    by_class = shuffled[ids[shuffled].argsort(stable=True)]
    unused = ids.bincount() - counts.sum(dim=1)
    counts = torch.cat([counts, unused[:, None]], dim=1)
    owners = torch.arange(clients + 1).repeat(len(counts)).repeat_interleave(counts.flatten())
    by_owner = by_class[owners.argsort(stable=True)]
    return list(torch.split(by_owner, counts.sum(dim=0).tolist())[:clients])


def _assign_classes(totals: Tensor, clients: int, per_client: int, generator: torch.Generator) -> Tensor:
    """1 where a client has a class, [clients, classes]: each gets the least used classes, ties at random."""
    assigned = torch.zeros(clients, len(totals), dtype=torch.long)
    uses = torch.zeros(len(totals), dtype=torch.long)
    ties = torch.rand(clients, len(totals), dtype=torch.float64, generator=generator)
    for client in range(clients):
        exhausted = (uses >= totals) * clients  # one more client would get no row of the class
        assigned[client, (uses + exhausted + ties[client]).argsort()[:per_client]] = 1
        uses += assigned[client]
    return assigned


def _levelled(sizes: Tensor, min_size: int) -> Tensor:
    """Raise sizes to `min_size` and lower the largest to a common level, so that the sum stays the same."""
    rows, low, high = int(sizes.sum()), min_size, int(sizes.max())
    while low < high:  # find the smallest level at which all rows fit
        middle = (low + high) // 2
        if int(sizes.clamp(min_size, middle).sum()) >= rows:
            high = middle
        else:
            low = middle + 1
    levelled = sizes.clamp(min_size, low)
    surplus = int(levelled.sum()) - rows
    levelled[(sizes >= low).nonzero().flatten()[:surplus]] -= 1
    return levelled


def _top_up(parts: list[Tensor], min_size: int, generator: torch.Generator) -> list[Tensor]:
    """Move random rows from the largest clients to those with fewer than `min_size`."""
    sizes = torch.tensor([len(part) for part in parts])
    targets = _levelled(sizes, min_size)
    kept, spare = [], []
    for part, target in zip(parts, targets.tolist(), strict=True):
        # Rows are grouped by class: without a shuffle, a client would lose rows of its last class first.
        shuffled = part[torch.randperm(len(part), generator=generator)] if target < len(part) else part
        kept.append(shuffled[:target])
        spare.append(shuffled[target:])
    gains = torch.split(torch.cat(spare), (targets - sizes).clamp(min=0).tolist())
    return [torch.cat(pair) for pair in zip(kept, gains, strict=True)]
