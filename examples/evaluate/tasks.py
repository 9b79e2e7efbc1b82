"""Three small models with data: handwritten digits, sounds of a machine, keywords in a stream.

Each function without arguments returns a module, trained in a second or two, and its inputs, as `hil evaluate` takes
it. Run as a program it writes the data, which the models were not trained with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from torch import nn

Array = npt.NDArray[Any]
Model = tuple[nn.Module, tuple[torch.Tensor]]


# --- digits: 8x8 images of scikit-learn, ten classes ---------------------------------------------------------

TRAINED = 1440  # images of 1797


def digit_images() -> tuple[Array, Array]:
    """Images [n, 1, 8, 8] from 0 to 1, and what they show, in an order by chance."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return (images[order].reshape(-1, 1, 8, 8) / 16).astype(np.float32), labels[order]


class DigitNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.last = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.last(x.flatten(1))  # type: ignore[no-any-return]


def digits() -> Model:
    images, labels = digit_images()
    return _classifier(DigitNet, images[:TRAINED], labels[:TRAINED])


# --- machine: clips of a spectrogram, some of a machine that is not as it should be ---------------------------

BINS, FRAMES, WINDOW = 16, 24, 4  # frequencies; frames of a clip; frames that the model sees at once


def sounds(clips: int, seed: int, *, anomalies: bool) -> Array:
    """Frames of clips [clips, FRAMES, BINS]: a few tones that swell together; of an anomaly some are louder."""
    chance = np.random.default_rng(seed)
    tones = np.exp(-((np.arange(BINS) - np.array([[3.0], [8.0], [12.0]])) ** 2) / 2)
    swell = 1 + 0.5 * np.sin(np.arange(FRAMES) / 3 + chance.uniform(0, 6, (clips, 1)))
    levels = np.ones((clips, 1, 3)) * swell[:, :, None]
    if anomalies:
        levels = levels + chance.uniform(0, 0.5, (clips, 1, 3)) * [0, 1, -1]
    frames: Array = levels @ tones + chance.normal(0, 0.15, (clips, FRAMES, BINS))
    return frames.astype(np.float32)


def windows_of(frames: Array) -> Array:
    """All windows of each clip, [clips, windows, WINDOW * BINS]."""
    starts = range(frames.shape[1] - WINDOW + 1)
    return np.stack([frames[:, first : first + WINDOW].reshape(len(frames), -1) for first in starts], axis=1)


def machine() -> Model:
    """An autoencoder of windows, trained on what is normal."""
    size = WINDOW * BINS
    windows = torch.from_numpy(windows_of(sounds(200, 1, anomalies=False)).reshape(-1, size))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(size, 32), nn.ReLU(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, size))
    _train(net, lambda: nn.functional.mse_loss(net(windows), windows), 300)
    return net, (windows[:1],)


# --- keywords: three of them in a stream of noise, seen through a sliding window -----------------------------

FEATURES, LENGTH = 8, 12  # of a frame; frames of a keyword, and of the window
KEYWORDS = 3  # classes 1 to 3; class 0 is nothing
SLACK = 2  # frames that a window may be early or late


def stream(frames: int, seed: int) -> tuple[Array, Array]:
    """Windows [n, 1, LENGTH, FEATURES] of one stream, one for each frame, and the keyword that each shows."""
    words = np.random.default_rng(99).normal(0, 1, (KEYWORDS + 1, LENGTH, FEATURES))
    chance = np.random.default_rng(seed)
    signal = chance.normal(0, 1.2, (frames, FEATURES))
    labels = np.zeros(frames - LENGTH + 1, np.int64)
    at = LENGTH
    while at < frames - 2 * LENGTH:
        word = int(chance.integers(1, KEYWORDS + 1))
        signal[at : at + LENGTH] += words[word]
        labels[at - SLACK : at + SLACK + 1] = word
        at += LENGTH + int(chance.integers(6, 30))
    windows = np.stack([signal[first : first + LENGTH] for first in range(len(labels))])
    return windows[:, None].astype(np.float32), labels


def keywords() -> Model:
    windows, labels = stream(6000, 2)

    def net() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 12, (3, FEATURES)), nn.ReLU(), nn.Flatten(), nn.Linear(12 * (LENGTH - 2), KEYWORDS + 1)
        )

    return _classifier(net, windows, labels)


# --- training, and the data ----------------------------------------------------------------------------------


def _classifier(make: Callable[[], nn.Module], inputs: Array, labels: Array) -> Model:
    torch.manual_seed(0)
    net, x, y = make(), torch.from_numpy(inputs), torch.from_numpy(labels)
    _train(net, lambda: nn.functional.cross_entropy(net(x), y), 60)
    return net, (x[:1],)


def _train(net: nn.Module, loss: Callable[[], torch.Tensor], steps: int) -> None:
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    net.eval()


def data() -> dict[str, dict[str, Array]]:
    """By the model's name the arrays of an `.npz`; `calibration` is of what the models were trained with."""
    images, shows = digit_images()
    normal, wrong = sounds(30, 3, anomalies=False), sounds(30, 4, anomalies=True)
    windows, labels = stream(900, 5)
    return {
        "digits": {"inputs": images[TRAINED:], "labels": shows[TRAINED:], "calibration": images[:100]},
        "machine": {
            "inputs": windows_of(np.concatenate([normal, wrong])),
            "labels": np.repeat([0, 1], 30),
            "calibration": windows_of(sounds(200, 1, anomalies=False))[::4, 0],
        },
        "keywords": {"inputs": windows, "labels": labels, "calibration": stream(6000, 2)[0][::50]},
    }


def main() -> None:
    for name, arrays in data().items():
        np.savez(f"{name}.npz", **arrays)
        print(f"{name}.npz: {len(arrays['labels'])} samples")


if __name__ == "__main__":
    main()
