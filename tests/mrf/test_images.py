"""Images as people have them: a right picture or one line that says why not."""

import struct
import sys
import zlib

import numpy as np
import pytest
import scipy.stats

import fstgrad as fg
from fstgrad.mrf import images

Image = pytest.importorskip("PIL.Image", reason="images need Pillow")

GRAY = np.random.default_rng(0).integers(256, size=(5, 7)).astype(np.uint8)
COLOURS = np.stack((GRAY, 255 - GRAY, GRAY // 2), axis=-1)


def read(tmp_path, array, name="a.png", mode=None, **options):
    image = Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(tmp_path / name, **options)
    return images.read_image(tmp_path / name, colour=True)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA"])
def test_gray_in_any_mode_is_gray(tmp_path, mode):
    np.testing.assert_array_equal(read(tmp_path, GRAY, mode=mode), GRAY / 255)


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_colours(tmp_path, mode):
    np.testing.assert_array_equal(read(tmp_path, COLOURS, mode=mode), COLOURS / 255)
    gray = images.read_image(tmp_path / "a.png")
    np.testing.assert_allclose(gray, (COLOURS / 255) @ [0.299, 0.587, 0.114], atol=1e-12)


def test_a_palette_keeps_its_colours(tmp_path):
    few = np.where(COLOURS > 127, 255, 0).astype(np.uint8)
    np.testing.assert_array_equal(read(tmp_path, few, mode="P"), few / 255)


def test_inks(tmp_path):
    flat = np.full((16, 16, 3), (200, 40, 90), np.uint8)
    found = read(tmp_path, flat, "a.jpg", "CMYK", quality=95)
    np.testing.assert_allclose(found, flat / 255, atol=0.03)


@pytest.mark.parametrize("name", ["a.png", "a.tiff"])
def test_16_bits(tmp_path, name):
    deep = GRAY.astype(np.uint16) * 257
    np.testing.assert_allclose(read(tmp_path, deep, name), GRAY / 255, atol=1e-12)


def test_floats(tmp_path):
    values = (GRAY / 255).astype(np.float32)
    np.testing.assert_array_equal(read(tmp_path, values, "a.tiff"), values)
    with pytest.raises(fg.InvalidInputError, match="values from 0 to 2; give floats in"):
        read(tmp_path, np.array([[0, 2]], np.float32), "a.tiff")
    with pytest.raises(fg.InvalidInputError, match=r"image\[0, 1\] is nan"):
        read(tmp_path, np.array([[0, np.nan]], np.float32), "a.tiff")
    with pytest.raises(fg.InvalidInputError, match="integers of at most 16 bits"):
        read(tmp_path, np.array([[0, 70000]], np.int32), "a.tiff")


def test_what_is_transparent_shows_white(tmp_path):
    alpha = np.where(GRAY > 127, 255, 0).astype(np.uint8)
    black = np.concatenate((np.zeros((5, 7, 3), np.uint8), alpha[..., None]), axis=-1)
    np.testing.assert_array_equal(read(tmp_path, black), (alpha == 0).astype(float))


def test_the_first_frame_is_taken(tmp_path):
    other = Image.fromarray(255 - GRAY)
    found = read(tmp_path, GRAY, "a.gif", save_all=True, append_images=[other])
    np.testing.assert_array_equal(found, GRAY / 255)


def test_a_photograph_is_turned_upright(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held on its side
    found = read(tmp_path, GRAY, exif=turned)
    np.testing.assert_array_equal(found, np.rot90(GRAY, -1) / 255)


def png(width, height, data):
    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "is not an image in a known format"),
        (b"text", "is not an image in a known format"),
        (png(60_000, 60_000, b"0"), "cannot be read: Image size .* exceeds limit"),
        (png(12_000, 12_000, b"0"), "cannot be read: Image size .* exceeds limit"),
        (png(4, 4, b"0123"), "cannot be read: .*; give an intact PNG"),
        (
            png(16, 16, np.random.default_rng(0).bytes(16 * 17))[:99],
            "cannot be read: .*; give an intact PNG",
        ),
    ],
)
def test_damaged_and_huge_files(tmp_path, data, message):
    (tmp_path / "a.png").write_bytes(data)
    with pytest.raises(fg.InvalidInputError, match=message) as caught:
        images.read_image(tmp_path / "a.png")
    assert "\n" not in str(caught.value)


def test_one_value_has_no_levels():
    for shape in ((1, 1), (3, 4)):
        with pytest.raises(
            fg.InvalidInputError, match="every pixel of the image has the same value"
        ):
            images.segmentation(np.ones(shape), 2)


def test_a_missing_package_has_the_name_that_pip_knows(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(fg.MissingDependencyError, match="the package 'Pillow'"):
        images.read_image(tmp_path / "a.png")


def test_node_scores_are_log_densities_of_the_mixture():
    image = np.array([[0.0, 0.1, 1.0], [0.05, 0.95, 0.5], [0.4, 0.6, 0.9]])
    found = images.segmentation(image, 3, noise=0.2)
    distance = (image[:, :, None] - found.means) ** 2
    deviation = np.sqrt(distance.min(axis=2).mean())
    density = scipy.stats.norm.pdf(np.sqrt(distance), scale=deviation)
    mixed = density @ (0.7 * np.eye(3) + 0.1)
    expected = np.log(mixed).reshape(9, 3)
    node = found.model.scores.node
    np.testing.assert_allclose(
        node - node[:, :1], expected - expected[:, :1], rtol=1e-12, atol=1e-12
    )
    assert (found.noise, found.deviation) == (0.2, pytest.approx(deviation, rel=1e-14))
