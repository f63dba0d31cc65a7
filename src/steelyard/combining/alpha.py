"""The moments of (Σ w_k p_k^α)^(1/α) for Gaussians p_k, by quadrature on each coordinate.

The line is cut into pieces that are short beside the Gaussians that matter there, and each piece gets the
nodes of Gauss and Legendre. Where the Gaussians are of similar width the pieces are equal. Elsewhere each
client brings its own, and so does the barycentre for α → 0, which that of a small α is close to.
"""

import math
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

NODES = 5  # of a piece
STEP = 1.5  # the length of a piece, in standard deviations
EQUAL = (16, 64)  # pieces of equal length: few if they do, else many, else each client's own
TAIL = 8.0  # standard deviations, beyond which there is nothing
REACH = 10  # pieces to either side of a client: further than TAIL, as p^α has longer tails
FINEST = 1e-12  # the least standard deviation beside a coordinate's extent: float64 must tell nodes apart
BLOCK = 1 << 19  # numbers at a time, 4 MB


def moments_of_power_mean(
    means: Tensor, variances: Tensor, weights: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Mean and variance [K] of the density ∝ (Σ w_k p_k^α)^(1/α), 0 < α < 1, for weights greater than 0.

    Coordinates without variance are left alone: their mean is Σ w μ_k. Where some clients have variance and
    others none, the latter count as very narrow.
    """
    middle = weights @ means
    centres, most = means - middle, variances.amax(dim=0)
    widths = variances.sqrt().maximum(FINEST * (centres.abs().amax(dim=0) + most.sqrt()))
    low, high = (centres - TAIL * widths).amin(dim=0), (centres + TAIL * widths).amax(dim=0)
    needed = torch.where(most > 0, (high - low) / (STEP * widths.amin(dim=0)), 0.0)
    mean, variance = torch.zeros_like(middle), torch.zeros_like(middle)
    for fewer, pieces in pairwise((0, *EQUAL, math.inf)):
        chosen = ((needed > fewer) & (needed <= pieces)).nonzero().flatten()
        size = BLOCK // (len(means) * NODES * int(min(pieces, (len(means) + 1) * (2 * REACH + 1))))
        for some in torch.split(chosen, max(1, size)):
            gaussians = centres[:, some], widths[:, some], weights
            edges = _own(*gaussians) if math.isinf(pieces) else _equal(low[some], high[some], int(pieces))
            mean[some], variance[some] = _integrate(*gaussians, alpha, edges)
    return middle + mean, variance


def _equal(low: Tensor, high: Tensor, pieces: int) -> Tensor:
    """The edges [E, K] of pieces of equal length."""
    steps = torch.arange(-pieces, pieces + 1, 2, dtype=low.dtype).unsqueeze(1) / pieces
    return (low + high) / 2 + steps * (high - low) / 2


def _own(centres: Tensor, widths: Tensor, weights: Tensor) -> Tensor:
    """The edges [E, K] of all clients' pieces and of the barycentre's for α → 0, in order."""
    precisions = weights.unsqueeze(1) / widths.square()
    total = precisions.sum(dim=0, keepdim=True)
    centres = torch.cat([centres, (precisions * centres).sum(dim=0, keepdim=True) / total])
    widths = torch.cat([widths, total.rsqrt()])
    steps = STEP * torch.arange(-REACH, REACH + 1, dtype=centres.dtype).view(-1, 1, 1)
    return (centres + steps * widths).flatten(end_dim=1).sort(dim=0).values


def _integrate(
    centres: Tensor, widths: Tensor, weights: Tensor, alpha: float, edges: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and variance [K] by the nodes of the pieces between the edges."""
    nodes, shares = map(torch.from_numpy, np.polynomial.legendre.leggauss(NODES))
    middles, halves = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    at = (middles.unsqueeze(1) + halves.unsqueeze(1) * nodes.view(-1, 1)).flatten(end_dim=1)
    length = (halves.unsqueeze(1) * shares.view(-1, 1)).flatten(end_dim=1)
    scores = (at - centres.unsqueeze(1)) / widths.unsqueeze(1)
    logs = weights.log().view(-1, 1, 1) - alpha * (scores.square() / 2 + widths.log().unsqueeze(1))
    density = torch.logsumexp(logs, dim=0) / alpha
    mass = length * (density - density.amax(dim=0)).exp()
    mass = mass / mass.sum(dim=0)
    mean = _sum(mass * at)
    return mean, _sum(mass * (at - mean).square())


def _sum(values: Tensor) -> Tensor:
    """From both ends to the middle, so that what is symmetric about 0 sums to 0 exactly."""
    return (values + values.flip(0)).sum(dim=0) / 2
