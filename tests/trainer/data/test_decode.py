"""How a film is cut: every clip whole, in order, from the right frames and squares."""

import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.trainer.data import decode
from gangway.trainer.data.decode import Cut, FilmDecoder
from gangway.trainer.data.index import BrokenItemError
from gangway.trainer.data.sources import Listing


@given(
    total=st.integers(1, 60),
    frames=st.integers(2, 8),
    stride=st.integers(1, 4),
    step=st.integers(0, 9),
    squares=st.integers(1, 3),
)
def test_every_clip_is_whole_and_evenly_spaced(total: int, frames: int, stride: int, step: int, squares: int) -> None:
    cut = Cut(resolution=1, channels=1, frames=frames, stride=stride, step=step, squares=squares)
    film = (np.arange(total)[:, None] + 100 * np.arange(squares)).astype(np.uint8).reshape(total, squares, 1, 1, 1)
    span = (frames - 1) * stride + 1
    if total < span:
        with pytest.raises(BrokenItemError, match=f"too few frames: {total}, a clip needs {span}"):
            cut.clips(film)
        return
    clips = cut.clips(film)
    assert clips.shape[1:] == cut.shape
    starts = list(range(0, total - span + 1, step or frames * stride))
    expected = [
        [(start + stride * frame + 100 * square) % 256 for frame in range(frames)]
        for square in range(squares)
        for start in starts
    ]
    assert clips.reshape(len(clips), frames).tolist() == expected


@given(width=st.integers(1, 300), height=st.integers(1, 300), squares=st.integers(1, 4))
def test_squares_lie_within_the_frame_and_reach_both_ends(width: int, height: int, squares: int) -> None:
    boxes = Cut(resolution=1, channels=1, frames=2, squares=squares).boxes(width, height)
    assert len(boxes) == squares
    for left, top, right, bottom in boxes:
        assert right - left == bottom - top == min(width, height)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
    if squares > 1:
        assert boxes[0][:2] == (0, 0)
        assert boxes[-1][2:] == (width, height)


@dataclass(frozen=True)
class OneFilm:
    """A FileSet of one film."""

    content: bytes
    place: str = "here"

    def listing(self) -> Listing:
        return Listing({"film.avi": len(self.content)})

    def read(self, name: str) -> bytes:
        return self.content


@pytest.mark.parametrize(
    ("limit", "enough", "too_small", "why"),
    [
        # The decoder counts the margins, too, that it adds to its own frames.
        ("_MOST_FRAME_PIXELS", 1 << 16, 64 * 48 - 1, "frames of 64x48"),
        ("_MOST_KEPT_BYTES", 9 * 8 * 8, 9 * 8 * 8 - 1, "cut it into shorter films"),
        ("_MOST_DECODED_PIXELS", 9 * 64 * 48, 9 * 64 * 48 - 1, "cut it into shorter films"),
    ],
)
def test_a_film_that_would_fill_the_memory_is_refused(
    film: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, limit: str, enough: int, too_small: int, why: str
) -> None:
    decoder = FilmDecoder(OneFilm(film(9)), ("film.avi",), Cut(resolution=8, channels=1, frames=3))
    monkeypatch.setattr(decode, limit, enough)
    assert len(decoder(0).images) == 3
    monkeypatch.setattr(decode, limit, too_small)
    with pytest.raises(BrokenItemError, match=why):
        decoder(0)


def test_the_decoder_itself_knows_the_largest_frame(film: Callable[..., bytes]) -> None:
    """Frames may be larger than the file's head says: libavcodec refuses what is above `max_pixels`."""
    av = pytest.importorskip("av", reason="PyAV is not installed here")
    with av.open(io.BytesIO(film(2))) as container:
        stream = container.streams.video[0]
        stream.codec_context.options = {"max_pixels": str(64 * 48 - 1)}
        with pytest.raises(av.FFmpegError):
            list(container.decode(stream))
