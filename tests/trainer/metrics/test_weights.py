"""Weights that are missing, are others or do not fit: the error says which file, where to get and where to put it."""

from pathlib import Path

import pytest
import torch

from gangway.trainer.config.presets import PRESETS
from gangway.trainer.core.errors import TrainerError
from gangway.trainer.metrics.c3d import C3D_WEIGHTS
from gangway.trainer.metrics.inception import INCEPTION, InceptionFeatures
from gangway.trainer.metrics.metric_registry import check_applies
from gangway.trainer.metrics.weights import load_tensors
from tools.bench.feature_speed import RANDOM_WEIGHTS

CPU = torch.device("cpu")


def test_missing_weights_say_what_to_do() -> None:
    with pytest.raises(TrainerError) as caught:
        InceptionFeatures(CPU)
    text = str(caught.value)
    assert text.startswith("$GANGWAY_INCEPTION_WEIGHTS (or evaluate's --weights): ")
    assert "set GANGWAY_INCEPTION_WEIGHTS to its path" in text, "train has no flag for it"
    assert "weights-inception-2015-12-05-6726825d.pth" in text
    assert "github.com/toshas/torch-fidelity/releases" in text
    assert "ENV GANGWAY_INCEPTION_WEIGHTS=/opt/weights/weights-inception-2015-12-05-6726825d.pth" in text


def test_what_a_message_offers_instead_is_a_metric_for_such_data() -> None:
    for weights, preset in ((INCEPTION, "dcgan-cifar10"), (C3D_WEIGHTS, "progan-video-ucf101")):
        with pytest.raises(TrainerError) as caught:
            weights.find(None)
        assert caught.value.fix.endswith(f"--metrics {weights.instead}")
        check_applies(weights.instead, PRESETS[preset])


def test_a_path_that_leads_nowhere_names_what_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainerError, match=r"^--weights: .*no such file"):
        INCEPTION.find(tmp_path / "there.pth")
    monkeypatch.setenv("GANGWAY_INCEPTION_WEIGHTS", str(tmp_path / "here.pth"))
    with pytest.raises(TrainerError, match=r"^\$GANGWAY_INCEPTION_WEIGHTS: .*no such file"):
        INCEPTION.find(None)
    (tmp_path / "here.pth").touch()
    assert INCEPTION.find(None) == tmp_path / "here.pth"


def test_other_weights_than_the_published_ones_are_refused(random_weights: Path) -> None:
    with pytest.raises(TrainerError, match=r"is not the published weights-inception.*hash") as caught:
        InceptionFeatures(CPU, random_weights)
    assert caught.value.allowed == "sha256 6726825d..."


def test_weights_of_another_shape_name_the_tensor(random_weights: Path, tmp_path: Path) -> None:
    state = torch.load(random_weights, weights_only=True)
    for name, change in {"fc.bias": torch.zeros(3), "Mixed_7c.branch1x1.conv.weight": None}.items():
        path = tmp_path / "other.pth"
        kept = {key: value for key, value in state.items() if key != name}
        torch.save(kept if change is None else {**kept, name: change}, path)
        with pytest.raises(TrainerError, match="do not fit the network") as caught:
            InceptionFeatures(CPU, path, published=RANDOM_WEIGHTS)
        assert caught.value.place == f"{path}: {name}"
        assert caught.value.value == ("no such tensor" if change is None else "shape (3,)")


def test_only_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"no weights at all")
    with pytest.raises(TrainerError, match="cannot be read as weights"):
        load_tensors(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(TrainerError, match="something else than named tensors"):
        load_tensors(path)
    torch.save({"code": print}, path)
    with pytest.raises(TrainerError, match="cannot be read as weights"):
        load_tensors(path)
