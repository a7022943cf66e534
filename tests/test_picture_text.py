"""Names in pictures and tables: letter by letter, in a font that has the letters, and as wide as they are."""

from __future__ import annotations

import io
import warnings

import matplotlib
import numpy as np
import pytest

from seegera_fast.support import fonts, hints, plots, report

NAMES = ["$x_{$", "_first", "a\\frac%^_$$", "数据库", "עולם", "one\ntwo", "\x1b[31mred", "long " * 30, "\udcff"]

pytestmark = pytest.mark.usefixtures("one_thread")


def picture(title="t", classes=None, labels=None, **settings):
    file = io.BytesIO()
    history = [{"epoch": 1, "loss": 2.0}]
    drawing = plots.draw_nodes(np.random.default_rng(0).standard_normal((len(NAMES), 3)))
    content = {"scores": "", "history": history, "titles": {}, "best_epoch": 1, "drawing": drawing}
    with matplotlib.rc_context(settings):
        plots.save_picture(file, title=title, labels=labels, classes=classes, **content)
    return file.getvalue()


@pytest.fixture
def texts(monkeypatch):
    """The texts of the last picture."""
    seen = []

    def families(given):
        seen[:] = list(given)
        return fonts.families(seen)

    monkeypatch.setattr(plots, "families", families)
    return seen


@pytest.mark.filterwarnings("ignore:no installed font has")
def test_names_are_drawn_letter_by_letter(texts):
    picture(f"on {NAMES[0]}", classes=NAMES, labels=np.arange(len(NAMES)))
    assert f"on {NAMES[0]}\n" in texts
    shown = [*NAMES[:5], "one two", "\\x1b[31mred", "long long long long l...", "\\xff"]
    assert set(shown) <= set(texts)


def test_a_picture_depends_on_no_settings_of_the_user():
    settings = {"text.usetex": True, "savefig.dpi": 40, "font.family": ["serif"], "axes.grid": True}
    assert picture("of $x$", **settings) == picture("of $x$")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a font with one Chinese letter, and fonts that can't be used; gives the family of the first."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    pen = TTGlyphPen(None)
    for number, point in enumerate([(100, 0), (100, 800), (900, 800), (900, 0)]):
        (pen.lineTo if number else pen.moveTo)(point)
    pen.closePath()
    glyphs = {".notdef": TTGlyphPen(None).glyph(), "letter": pen.glyph()}
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap({ord("中"): "letter"})
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Test Letters", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(tmp_path / "letters.ttf")
    (tmp_path / "damaged.ttf").write_bytes(b"none")
    manager = matplotlib.font_manager.fontManager
    known = [entry for entry in manager.ttflist if entry.name.startswith(("DejaVu", "Last Resort"))]
    monkeypatch.setattr(manager, "ttflist", known)
    for name in ("damaged", "absent"):
        entry = matplotlib.font_manager.FontEntry(fname=str(tmp_path / f"{name}.ttf"), name=name, style="normal")
        manager.ttflist.append(entry)
    manager.addfont(tmp_path / "letters.ttf")
    return "Test Letters"


def test_letters_are_drawn_in_a_font_that_has_them(installed):
    assert fonts.families(["a", "b\n"]) == ([fonts.FIRST], "")
    assert fonts.families(["中$文"]) == ([fonts.FIRST, installed], "文")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = picture("中")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert drawn != picture("文")


def test_letters_that_no_font_has_are_named_once(installed):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture("文字文字 中", classes=["字"] * len(NAMES), labels=np.arange(len(NAMES)))
    assert [str(each.message) for each in caught] == ["no installed font has 字文: the picture has boxes for them"]


def test_wide_letters_are_aligned():
    assert hints.columns("中a") == 3
    assert hints.shown_name("中" * 40, 9) == "中" * 3 + "..."
    lines = report.table([["中文", "1"], ["a", "22"]]).splitlines()
    assert lines == ["中文   1", "a     22"]
