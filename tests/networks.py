"""Small networks that several test modules run."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Net(nn.Module):
    """For (1, 3, 17, 17): scratch of every kind, a tensor used twice, odd sizes, so that vectors have tails."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Conv2d(3, 19, 3, stride=2, padding=1), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(19, 19, 3, padding=1, groups=19), nn.Conv2d(19, 19, 1))
        self.pool = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2))
        self.head = nn.Linear(19 * 4, 33)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        return self.head(torch.flatten(self.pool(x + self.branch(x) * x), 1))
