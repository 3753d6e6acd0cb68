"""`wengert demo` trains, reaches its accuracy, shows and writes its report, and gives the same numbers each time."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

import wengert as wg
from wengert.cli import main

pytest.importorskip("sklearn", reason="the demonstration learns from scikit-learn's digits")
pytest.importorskip("rich", reason="the demonstration shows its progress")
pytest.importorskip("matplotlib", reason="the demonstration draws")

from rich.cells import cell_len
from rich.console import Console

from wengert.cli.digits import page, picture, terminal, training

CLOSING = re.compile(r"test accuracy ([\d.]+), [\d.]+ seconds per epoch")


def run(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> float:
    """The accuracy in the closing line."""
    assert main(["demo", "--alone", "--out", str(folder), *options]) == 0
    found = CLOSING.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert found
    return float(found[1])


def test_the_same_numbers_each_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, tmp_path, "--epochs", "2") == run(capsys, tmp_path, "--epochs", "2")


def test_the_promised_accuracy_and_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, tmp_path / "new" / "demo") >= 0.97
    assert {p.name for p in (tmp_path / "new" / "demo").iterdir()} == {"report.html", "report.png"}
    text = (tmp_path / "new" / "demo" / "report.html").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 1
    assert "Conv2d(16, 32" in text and "6,186" in text


def made_up_result(runs: int = 2) -> training.Result:
    """A result without a training: every third image is taken for the next digit."""
    digits = training.load(seed=0)
    predicted = digits.test_labels.copy()
    predicted[::3] = (predicted[::3] + 1) % 10
    certainty = (digits.test_images.mean(axis=(1, 2, 3)) * 0.9 + 0.1).clip(0, 1)
    made = [training.Run(name, [1.0, 0.2, 0.05], [0.5, 0.8, 0.9], [0.1, 0.1, 0.1]) for name in ("wengert", "PyTorch")]
    return training.Result(made[:runs], training.layers(training.network(0), digits), digits, predicted, certainty)


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("width", [36, 50, 80, 200])
def test_it_is_readable_at_every_width(width: int, coloured: bool) -> None:
    result = made_up_result()
    console = Console(width=width, record=True, highlight=False, force_terminal=coloured, file=io.StringIO())
    screen = terminal.Screen(console)
    screen.show_model(result.layers, result.digits)
    if not coloured:  # a terminal's progress is drawn again and again in one line, which a record joins
        with screen.progress("wengert", 3) as report:
            report(result.runs[0])
    screen.show_result(result)
    lines = console.export_text().splitlines()
    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    assert "150 of 450" in text.replace("\n", " ") and "PyTorch" in text and "6,186" in text
    assert re.search(r"\d → \d", text)


def test_mistakes_come_first_and_the_most_certain_of_them_before_others() -> None:
    result = made_up_result()
    assert result.mistakes == 150 and result.accuracy == pytest.approx(2 / 3)
    wrong, right = result.hardest[:150], result.hardest[150:]
    assert all(k % 3 == 0 for k in wrong) and all(k % 3 for k in right)
    assert result.certainty[wrong[0]] == result.certainty[::3].max()
    assert result.certainty[right[0]] == min(result.certainty[right])


@pytest.mark.parametrize("runs", [1, 2])
def test_picture_and_page(runs: int, tmp_path: Path) -> None:
    result = made_up_result(runs)
    picture.draw(result, tmp_path / "report.png")
    page.write(result, tmp_path / "report.png", tmp_path / "report.html")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert ("PyTorch" in (tmp_path / "report.html").read_text(encoding="utf-8")) == (runs == 2)


def test_pytorch_learns_the_same_beside_it() -> None:
    pytest.importorskip("torch", reason="without it there is nothing beside ours")
    from wengert.cli.digits import peer

    wg.set_num_threads(1)  # PyTorch takes as many; two would wait for each other on a busy machine
    digits, net = training.load(seed=0), training.network(seed=0)
    start = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    ours = training.train(net, digits, 2, 32, 0, lambda run: None)
    theirs = peer.train(start, digits, 2, 32, 0, lambda run: None)
    assert theirs.losses == pytest.approx(ours.losses, rel=0.1)  # but for the images' dropout masks, the same training


def test_what_it_refuses(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["demo", "--epochs", "0"]) == 2
    assert "--epochs must be at least 1, got 0" in capsys.readouterr().err
    for name in [n for n in sys.modules if n.startswith("wengert.cli.digits.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(sys.modules["wengert.cli.digits"], "page")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert main(["demo"]) == 1
    assert "needs sklearn" in capsys.readouterr().err
