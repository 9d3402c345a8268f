"""Datasets and transforms of images against torchvision's own."""

from __future__ import annotations

import gzip
import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from jaxmigrate.layers.library import vision as ours
from jaxmigrate.verify.torch_operators import tolerate_missing_operators

tolerate_missing_operators()
theirs: Any = importlib.import_module("torchvision")
T = theirs.transforms


def image(height: int, width: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(height * width).integers(0, 256, shape, dtype=np.uint8), mode)


PAIRS: list[tuple[str, Callable[[Any], Any], int, int]] = [
    ("ToTensor", lambda v: v.ToTensor(), 7, 9),
    ("Resize to a pair", lambda v: v.Resize((5, 11)), 7, 9),
    ("Resize of the shorter side", lambda v: v.Resize(5), 7, 9),
    ("Resize of the shorter side, upright", lambda v: v.Resize([12]), 9, 7),
    ("CenterCrop", lambda v: v.CenterCrop(4), 7, 9),
    ("CenterCrop of odd borders", lambda v: v.CenterCrop((4, 6)), 9, 7),
    ("CenterCrop of a smaller image", lambda v: v.CenterCrop((10, 4)), 7, 9),
    ("Pad", lambda v: v.Pad(2), 7, 9),
    ("Pad with a pair", lambda v: v.Pad((1, 3), fill=7), 7, 9),
    ("Pad with four", lambda v: v.Pad((1, 2, 3, 4)), 7, 9),
    ("Grayscale", lambda v: v.Grayscale(), 7, 9),
    ("Grayscale in three channels", lambda v: v.Grayscale(3), 7, 9),
    ("a flip", lambda v: v.RandomHorizontalFlip(p=1.0), 7, 9),
    ("no flip", lambda v: v.RandomHorizontalFlip(p=0.0), 7, 9),
    ("a flip upside down", lambda v: v.RandomVerticalFlip(p=1.0), 7, 9),
    ("RandomCrop of all", lambda v: v.RandomCrop((7, 9)), 7, 9),
    ("RandomGrayscale", lambda v: v.RandomGrayscale(p=1.0), 7, 9),
    ("Lambda", lambda v: v.Lambda(lambda img: img.rotate(90)), 8, 8),
]


@pytest.mark.parametrize(("make", "height", "width"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_transform_of_an_image(make: Callable[[Any], Any], height: int, width: int, mode: str) -> None:
    picture = image(height, width, mode)
    want, got = make(T)(picture), make(ours)(picture)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert np.asarray(got).dtype == np.asarray(want).dtype


def test_compose_and_normalize() -> None:
    def chain(v: Any) -> Any:
        return v.Compose([v.Resize(8), v.ToTensor(), v.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])

    picture = image(12, 9)
    np.testing.assert_array_equal(chain(ours)(picture), chain(T)(picture).numpy())


def test_random_crops_lie_in_the_padded_image_and_differ() -> None:
    picture, crop = image(8, 8), ours.RandomCrop(8, padding=4)
    padded = np.asarray(ours.Pad(4)(picture))
    crops = [np.asarray(crop(picture)) for _ in range(30)]
    places = {
        (top, left)
        for part in crops
        for top in range(9)
        for left in range(9)
        if np.array_equal(padded[top : top + 8, left : left + 8], part)
    }
    assert len(places) > 15
    with pytest.raises(ValueError, match="cannot crop"):
        ours.RandomCrop(9)(picture)


def test_random_resized_crop_takes_the_asked_share_of_the_area() -> None:
    crop = ours.RandomResizedCrop(6, scale=(0.3, 0.5))
    boxes = [crop.box(40, 30) for _ in range(200)]
    shares = [h * w / 1200 for _, _, h, w in boxes]
    assert min(shares) > 0.25 and max(shares) < 0.55 and np.std(shares) > 0.03
    assert all(0 <= top <= 30 - h and 0 <= left <= 40 - w for top, left, h, w in boxes)
    assert all(0.7 < w / h < 1.45 for _, _, h, w in boxes)
    assert crop(image(30, 40)).size == (6, 6)


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray, packed: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    head = b"".join(int(n).to_bytes(4, "big") for n in (0x803, *images.shape))
    files = {
        f"{part}-images-idx3-ubyte": head + images.tobytes(),
        f"{part}-labels-idx1-ubyte": (0x801).to_bytes(4, "big") + len(labels).to_bytes(4, "big") + labels.tobytes(),
    }
    for name, data in files.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


def test_mnist_reads_the_files_that_torchvision_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, packed in (("train", False), ("t10k", False)):
        pictures, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), rng.integers(0, 10, 5).astype(np.uint8)
        write_idx(tmp_path / "MNIST" / "raw", part, pictures, labels, packed)
        write_idx(tmp_path / "FashionMNIST" / "raw", part, pictures, labels, True)
    for train in (True, False):
        want = theirs.datasets.MNIST(tmp_path, train=train, transform=T.ToTensor())
        for cls in (ours.MNIST, ours.FashionMNIST):
            got = cls(tmp_path, train=train, transform=ours.ToTensor())
            assert len(got) == len(want) == 5
            for (a, label), (b, expected) in zip(map(got.__getitem__, range(5)), want, strict=False):
                np.testing.assert_array_equal(a, b.numpy())
                assert (label, type(label)) == (expected, type(expected))
    with pytest.raises(RuntimeError, match="download=True"):
        ours.MNIST(tmp_path / "elsewhere")


def test_cifar_reads_the_files_that_torchvision_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    home = tmp_path / "cifar-10-batches-py"
    home.mkdir()
    for name in [*ours.CIFAR10.train_files, *ours.CIFAR10.test_files]:
        batch = {"data": rng.integers(0, 256, (2, 3072), np.uint8), "labels": rng.integers(0, 10, 2).tolist()}
        (home / name).write_bytes(pickle.dumps(batch))
    (home / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    monkeypatch.setattr(theirs.datasets.CIFAR10, "_check_integrity", lambda self: True)  # sums of the real files
    monkeypatch.setattr(theirs.datasets.cifar, "check_integrity", lambda *_: True)
    for train in (True, False):
        want, got = theirs.datasets.CIFAR10(tmp_path, train=train), ours.CIFAR10(tmp_path, train=train)
        assert len(got) == len(want)
        for i in range(len(want)):
            np.testing.assert_array_equal(np.asarray(got[i][0]), np.asarray(want[i][0]))
            assert got[i][1] == want[i][1]


def test_image_folder(tmp_path: Path) -> None:
    for name in ("dog/b.png", "dog/a.png", "cat/deep/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        image(6, 5).save(tmp_path / name)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    want, got = theirs.datasets.ImageFolder(tmp_path), ours.ImageFolder(tmp_path)
    assert got.classes == want.classes and got.class_to_idx == want.class_to_idx
    assert [(str(p), t) for p, t in got.samples] == [(str(p), t) for p, t in want.samples]
    for i in range(len(want)):
        np.testing.assert_array_equal(np.asarray(got[i][0]), np.asarray(want[i][0]))


@pytest.mark.parametrize("options", [{}, {"nrow": 2, "padding": 1}, {"normalize": True}, {"pad_value": 0.5}], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_grid(options: dict[str, Any], channels: int, tmp_path: Path) -> None:
    images = np.random.default_rng(2).normal(size=(5, channels, 4, 6)).astype(np.float32)
    want = theirs.utils.make_grid(torch.from_numpy(images), **options).numpy()
    np.testing.assert_allclose(ours.make_grid(images, **options), want, rtol=1e-6, atol=1e-6)
    theirs.utils.save_image(torch.from_numpy(images), tmp_path / "want.png", **options)
    ours.save_image(images, tmp_path / "got.png", **options)
    with Image.open(tmp_path / "want.png") as a, Image.open(tmp_path / "got.png") as b:
        assert np.abs(np.asarray(a).astype(int) - np.asarray(b).astype(int)).max() <= (
            1 if "normalize" in options else 0
        )


def test_random_transforms_draw_apart() -> None:
    """One flip says nothing about the other: with a stream of the same seed each they would always go together."""
    picture = Image.fromarray(np.array([[0, 1], [2, 3]], np.uint8))
    sideways, upside_down = ours.RandomHorizontalFlip(), ours.RandomVerticalFlip()
    corners = [int(np.asarray(upside_down(sideways(picture)))[0, 0]) for _ in range(400)]
    assert min(np.bincount(corners, minlength=4)) > 60
