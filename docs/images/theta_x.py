"""Draws theta_x.png, the example of the paper's Section 6: F(x) = theta x with an RBF kernel.

Run it in its folder, with nsvm's Python.
"""

from __future__ import annotations

from pathlib import Path

import torch

from nsvm_cli.models.kernels import RBF
from nsvm_cli.models.penalties import PENALTIES, distance_identity, distance_ones, entropy
from nsvm_cli.page.plotting import SERIES, new_figure, write_figure

x = torch.randn(16, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
thetas = torch.logspace(-2, 2, 200, dtype=torch.float64)
kernels = [RBF(1.0)(theta * x, theta * x) for theta in thetas]
ADDED = {name: PENALTIES[name] for name in ("entropy", "identity", "ones")}
FIGURES = {"entropy": entropy, "distance_identity": distance_identity, "distance_ones": distance_ones}

with new_figure(8, 3.2) as figure:
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, title, curves, colors in (
        (left, "K goes from all ones to the identity", FIGURES, SERIES[:3]),
        (right, "what the penalties add", ADDED, SERIES[:3]),
    ):
        for (name, of), color in zip(curves.items(), colors, strict=True):
            style = "--" if name in ("distance_ones", "ones") else "-"
            axes.plot(
                thetas, [float(of(K)) for K in kernels], style, color=color, label=name.replace("_", " ")
            )
        axes.set(xscale="log", xlabel="θ", title=title)
        axes.set_xticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        axes.legend(fontsize="small", loc="center right")
    write_figure(Path("theta_x.png"), figure)
