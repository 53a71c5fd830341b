"""Data sets in small local folders."""

import hashlib

import pytest

from gradsync.runtime.torchvision_operators import torchvision
from image_files import CIFAR_FILES, write_cifar10, write_mnist, write_photographs


@pytest.fixture
def mnist(tmp_path):
    write_mnist(tmp_path)
    return tmp_path


@pytest.fixture
def cifar10(tmp_path):
    """Files of the layout of CIFAR-10, which are not the published ones."""
    write_cifar10(tmp_path)
    return tmp_path


@pytest.fixture
def taken_for_published(cifar10, monkeypatch):
    """Puts the MD5 of these files in place of those of the published ones."""

    def listed(*files):
        return [[f, hashlib.md5((cifar10 / "cifar-10-batches-py" / f).read_bytes()).hexdigest()] for f in files]

    published = torchvision().datasets.CIFAR10
    monkeypatch.setattr(published, "train_list", listed(*CIFAR_FILES[:5]))
    monkeypatch.setattr(published, "test_list", listed(*CIFAR_FILES[5:]))
    monkeypatch.setattr(published, "meta", published.meta | {"md5": listed("batches.meta")[0][1]})


@pytest.fixture
def photographs(tmp_path):
    write_photographs(tmp_path)
    return tmp_path
