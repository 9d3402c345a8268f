"""Images: torchvision's datasets and transforms on PIL images and NumPy arrays, on the host."""

import gzip
import numbers
import pickle
import tarfile
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image

from .data import Dataset

# One stream for all transforms: with the same seed each, two flips would always go together.
_RNG = np.random.default_rng(0)


class Compose:
    """Transforms one after the other."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for transform in self.transforms:
            img = transform(img)
        return img


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd):
        self.lambd = lambd

    def __call__(self, img):
        return self.lambd(img)


class ToTensor:
    """An image, or an array (H, W) or (H, W, C), as (C, H, W); bytes become float32 in [0, 1]."""

    def __call__(self, pic):
        array = np.asarray(pic)
        if array.dtype == bool:
            array = array.astype(np.uint8) * 255
        array = np.moveaxis(array, -1, 0) if array.ndim == 3 else array[None]
        return array.astype(np.float32) / np.float32(255) if array.dtype == np.uint8 else array.copy()


class Normalize:
    """(x - mean) / std for each channel of an array (..., C, H, W)."""

    def __init__(self, mean, std):
        self.mean, self.std = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in (mean, std))

    def __call__(self, tensor):
        return (np.asarray(tensor) - self.mean) / self.std


def _pair(size):
    """(height, width) of a number, of one number in a list, or of two."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    return (size[0], size[0]) if len(size) == 1 else tuple(size)


def _crop(img, top, left, height, width):
    """A part of an image; what lies outside of it is black."""
    return img.crop((left, top, left + width, top + height))


class Resize:
    """An image scaled to (height, width), or with one number so that its shorter side has that length."""

    def __init__(self, size, interpolation=Image.Resampling.BILINEAR):
        self.size, self.interpolation = size, interpolation

    def __call__(self, img):
        if isinstance(self.size, numbers.Number) or len(self.size) == 1:
            short, (width, height) = _pair(self.size)[0], img.size
            if width <= height:
                width, height = short, int(short * height / width)
            else:
                width, height = int(short * width / height), short
        else:
            height, width = self.size
        return img.resize((width, height), self.interpolation)


class CenterCrop:
    """The middle of an image, filled with black where the image is smaller."""

    def __init__(self, size):
        self.size = _pair(size)

    def __call__(self, img):
        height, width = self.size
        grown = max(img.size[1], height), max(img.size[0], width)
        if grown != (img.size[1], img.size[0]):
            img = _crop(img, -((grown[0] - img.size[1]) // 2), -((grown[1] - img.size[0]) // 2), *grown)
        return _crop(img, round((grown[0] - height) / 2.0), round((grown[1] - width) / 2.0), height, width)


class Pad:
    """An image with a border of `fill`: one width, (left and right, top and bottom), or (left, top, right, bottom)."""

    def __init__(self, padding, fill=0):
        sides = (padding,) if isinstance(padding, numbers.Number) else tuple(padding)
        self.left, self.top, self.right, self.bottom = (sides * 4)[:4]
        self.fill = fill

    def __call__(self, img):
        size = img.size[0] + self.left + self.right, img.size[1] + self.top + self.bottom
        fill = (
            (self.fill,) * len(img.getbands()) if isinstance(self.fill, int) and len(img.getbands()) > 1 else self.fill
        )
        padded = Image.new(img.mode, size, fill)
        padded.paste(img, (self.left, self.top))
        return padded


class RandomCrop:
    """A part of an image at a random place, after padding it with `fill`."""

    def __init__(self, size, padding=None, fill=0):
        self.size, self.pad = _pair(size), None if padding is None else Pad(padding, fill)

    def __call__(self, img):
        img = img if self.pad is None else self.pad(img)
        (height, width), (has_width, has_height) = self.size, img.size
        if has_height < height or has_width < width:
            raise ValueError(f"cannot crop {self.size} from an image of {(has_height, has_width)}")
        top, left = _RNG.integers(has_height - height + 1), _RNG.integers(has_width - width + 1)
        return _crop(img, int(top), int(left), height, width)


class RandomResizedCrop:
    """A random part of an image, of a random share of its area and a random shape, scaled to `size`."""

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), interpolation=Image.Resampling.BILINEAR):
        self.size, self.scale, self.ratio, self.interpolation = _pair(size), scale, ratio, interpolation

    def __call__(self, img):
        return _crop(img, *self.box(*img.size)).resize(self.size[::-1], self.interpolation)

    def box(self, width, height):
        for _ in range(10):
            area = width * height * _RNG.uniform(*self.scale)
            shape = np.exp(_RNG.uniform(*np.log(self.ratio)))
            w, h = round(np.sqrt(area * shape)), round(np.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                return int(_RNG.integers(height - h + 1)), int(_RNG.integers(width - w + 1)), h, w
        w, h = width, height
        if width / height < self.ratio[0]:
            h = round(w / self.ratio[0])
        elif width / height > self.ratio[1]:
            w = round(h * self.ratio[1])
        return (height - h) // 2, (width - w) // 2, h, w


class RandomHorizontalFlip:
    """An image or array (..., H, W) mirrored left to right with probability p."""

    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img):
        if _RNG.random() >= self.p:
            return img
        return img.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if isinstance(img, Image.Image) else img[..., ::-1]


class RandomVerticalFlip:
    """An image or array (..., H, W) turned upside down with probability p."""

    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img):
        if _RNG.random() >= self.p:
            return img
        return img.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if isinstance(img, Image.Image) else img[..., ::-1, :]


class RandomRotation:
    """An image turned by a random angle between two numbers of degrees, or between -degrees and degrees."""

    def __init__(self, degrees):
        self.degrees = (-degrees, degrees) if isinstance(degrees, numbers.Number) else tuple(degrees)

    def __call__(self, img):
        return img.rotate(_RNG.uniform(*self.degrees))


class Grayscale:
    """An image without its colours, with one channel or three."""

    def __init__(self, num_output_channels=1):
        self.num_output_channels = num_output_channels

    def __call__(self, img):
        gray = img.convert("L")
        return gray if self.num_output_channels == 1 else Image.merge("RGB", (gray,) * 3)


class RandomGrayscale:
    """An image that loses its colours with probability p; the number of channels stays."""

    def __init__(self, p=0.1):
        self.p = p

    def __call__(self, img):
        return Grayscale(len(img.getbands()))(img) if _RNG.random() < self.p else img


class VisionDataset(Dataset):
    """Base class: `transform` is applied to each image, `target_transform` to each label."""

    def __init__(self, root=None, transform=None, target_transform=None):
        self.root, self.transform, self.target_transform = root, transform, target_transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        img, target = Image.fromarray(self.data[index]), int(self.targets[index])
        return self.transformed(img, target)

    def transformed(self, img, target):
        if self.transform is not None:
            img = self.transform(img)
        return img, target if self.target_transform is None else self.target_transform(target)


def _fetch(url, path):
    """Download a file unless it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        part = path.with_name(path.name + ".part")
        urllib.request.urlretrieve(url, part)
        part.rename(path)


class MNIST(VisionDataset):
    """Handwritten digits, 28 x 28, from the files in `root`/MNIST/raw (packed with gzip or not)."""

    mirror = "https://ossci-datasets.s3.amazonaws.com/mnist/"

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform, target_transform)
        self.train = train
        part = "train" if train else "t10k"
        self.data = self.read(f"{part}-images-idx3-ubyte", 16, download).reshape(-1, 28, 28)
        self.targets = self.read(f"{part}-labels-idx1-ubyte", 8, download).astype(np.int64)

    def read(self, name, header, download):
        path = Path(self.root) / type(self).__name__ / "raw" / name
        packed = path.with_name(f"{name}.gz")
        if download and not path.exists():
            _fetch(f"{self.mirror}{name}.gz", packed)
        if not path.exists() and not packed.exists():
            raise RuntimeError(f"{path} not found: use download=True")
        data = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
        return np.frombuffer(data, np.uint8, offset=header)


class FashionMNIST(MNIST):
    """Clothes, 28 x 28, in the format of MNIST."""

    mirror = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class KMNIST(MNIST):
    """Japanese characters, 28 x 28, in the format of MNIST."""

    mirror = "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"


class CIFAR10(VisionDataset):
    """Colour images of ten kinds of things, 32 x 32, from the folder that the archive unpacks to."""

    folder, archive, label = "cifar-10-batches-py", "cifar-10-python.tar.gz", "labels"
    train_files, test_files = [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(root, transform, target_transform)
        self.train = train
        home = Path(root) / self.folder
        if download and not home.exists():
            _fetch(f"https://www.cs.toronto.edu/~kriz/{self.archive}", Path(root) / self.archive)
            with tarfile.open(Path(root) / self.archive) as packed:
                packed.extractall(root, filter="data")
        if not home.exists():
            raise RuntimeError(f"{home} not found: use download=True")
        parts = [
            pickle.loads((home / name).read_bytes(), encoding="latin1")
            for name in (self.train_files if train else self.test_files)
        ]
        self.data = np.concatenate([p["data"] for p in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.targets = [label for p in parts for label in p[self.label]]


class CIFAR100(CIFAR10):
    """Colour images of a hundred kinds of things, 32 x 32."""

    folder, archive, label = "cifar-100-python", "cifar-100-python.tar.gz", "fine_labels"
    train_files, test_files = ["train"], ["test"]


def pil_loader(path):
    """The image in a file, in colour."""
    with Image.open(path) as img:
        return img.convert("RGB")


class ImageFolder(VisionDataset):
    """Images in one folder for each class: root/dog/a.png, root/cat/b.png."""

    extensions = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

    def __init__(self, root, transform=None, target_transform=None, loader=pil_loader):
        super().__init__(root, transform, target_transform)
        self.loader = loader
        self.classes = sorted(p.name for p in Path(root).iterdir() if p.is_dir())
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}
        self.samples = [
            (str(path), i)
            for i, name in enumerate(self.classes)
            for path in sorted((Path(root) / name).rglob("*"))
            if path.suffix.lower() in self.extensions
        ]
        self.imgs, self.targets = self.samples, [i for _, i in self.samples]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, target = self.samples[index]
        return self.transformed(self.loader(path), target)


def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, pad_value=0.0):
    """Images (N, C, H, W) side by side, `nrow` in a row, as one array (3, H, W)."""
    images = np.stack([np.asarray(t) for t in tensor]) if isinstance(tensor, (list, tuple)) else np.asarray(tensor)
    images = images.reshape(-1, *((1,) * (3 - images.ndim)), *images.shape[-3:]) if images.ndim < 4 else images
    images = np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images
    if normalize:
        low, high = value_range or (images.min(), images.max())
        images = (np.clip(images, low, high) - low) / max(high - low, 1e-5)
    if len(images) == 1:
        return images[0]
    columns = min(nrow, len(images))
    rows, (height, width) = -(-len(images) // columns), (images.shape[2] + padding, images.shape[3] + padding)
    grid = np.full((images.shape[1], rows * height + padding, columns * width + padding), pad_value, images.dtype)
    for i, image in enumerate(images):
        top, left = (i // columns) * height + padding, (i % columns) * width + padding
        grid[:, top : top + height - padding, left : left + width - padding] = image
    return grid


def save_image(tensor, fp, nrow=8, padding=2, normalize=False, value_range=None, pad_value=0.0, format=None):
    """Write images with values in [0, 1], (N, C, H, W) or (C, H, W), into one image file."""
    grid = make_grid(tensor, nrow, padding, normalize, value_range, pad_value)
    Image.fromarray(np.clip(grid * 255 + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 0)).save(fp, format=format)
