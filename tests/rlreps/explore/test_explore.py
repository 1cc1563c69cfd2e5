"""The page to explore: what it embeds, what it refuses, and in a browser, what it shows."""

import base64
import dataclasses
import io
import json
import re
import shutil
import subprocess
import time
import warnings
import zlib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

from rlreps import subspace
from rlreps.app.generation import generate
from rlreps.app.job import run_job
from rlreps.app.jobs.train import Train
from rlreps.app.trained_runs import load_encoder
from rlreps.encoders import FourierMLP
from rlreps.envs import load_arena
from rlreps.errors import FitWarning, InputError
from rlreps.explore import build, runs
from rlreps.explore import page as rendering
from rlreps.explore.build import explore
from rlreps.runs.folder import RunFolder
from rlreps.successor import Transitions, fit
from rlreps.successor.measure.grids import BoxGrid, Grid
from rlreps.successor.measure.methods import Transition
from rlreps.successor.measure.rows import RowEstimates
from rlreps.successor.measure.transition_kernels.matrix import action_steps
from rlreps.successor.truth.ground_truth import load_ground_truth
from rlreps.successor.truth.save_matrix import save_matrix
from rlreps.successor.truth.states import CUMULANT_SUMS
from rlreps.successor.truth.store import open_store
from rlreps.successor.truth.store.blocks import StoreBlocks
from rlreps.training.config import TrainingConfig

TRAINING = TrainingConfig(
    encoder=FourierMLP(hidden=(16,), frequencies=3),
    num_features=3,
    steps=40,
    rows=40,
    tasks=32,
    num_seeds=2,
    evaluate_every=10,
    checkpoint_every=20,
)


@pytest.fixture(scope="module")
def trained(toy_store, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained") / "run"
    run_job(Train(store=toy_store, config=TRAINING), out)
    return out


@pytest.fixture(scope="module")
def page(trained, tmp_path_factory):
    """8 x 8 cells with all rows, and a run, whose store is found without being named."""
    out = tmp_path_factory.mktemp("pages") / "rows.html"
    return explore([trained], out, components=12)


def stored(path):
    return np.concatenate([rows for _, rows in StoreBlocks(open_store(path)).blocks()])


class Contents:
    """Read what a page embeds as its script does."""

    def __init__(self, text):
        self.described = json.loads(
            re.search(r'<script type="application/json" id="described">(.*?)</script>', text)[1]
        )
        pattern = r'<script type="application/octet-stream" id="array-([^"]+)">([^<]*)</script>'
        self.blocks = dict(re.findall(pattern, text))
        self.shape = (self.described["rows"], self.described["columns"])

    def __getitem__(self, name):
        entry = self.described["arrays"][name]
        dtype = np.dtype(entry["type"])
        planes = np.frombuffer(zlib.decompress(base64.b64decode(self.blocks[name])), np.uint8)
        whole = planes.reshape(dtype.itemsize, -1).T.copy().view(dtype)[:, 0]
        if "scales" not in entry:
            return whole
        maps = whole.reshape(-1, *self.shape)
        maps = np.cumsum(np.cumsum(maps, axis=1, dtype=dtype), axis=2, dtype=dtype)
        return maps * np.asarray(entry["scales"])[:, None, None]


def test_the_page_holds_the_store_s_numbers_and_asks_nothing_of_a_network(page, toy_store):
    text = page.read_text(encoding="utf-8")
    # The page makes both itself: a picture of its frames, and the link of a download.
    assert re.findall(r"""(?:src|href)\s*=|https?://|@import|url\(""", text) == ["src =", "href ="]
    assert "default-src 'none'" in text
    contents = Contents(text)
    truth = load_ground_truth(toy_store)
    matrix = stored(toy_store)
    left, right = contents["left"].reshape(12, 64), contents["right"].reshape(12, 64)
    np.testing.assert_allclose(left.T, truth.principal.basis[:, :12], atol=2e-5)
    exact = (matrix - matrix.mean(axis=0)).T @ truth.principal.basis[:, :12]
    np.testing.assert_allclose(right.T, exact, atol=2e-5 * np.abs(exact).max())
    rows = contents["rows"].reshape(64, 64)
    np.testing.assert_allclose(rows, matrix, atol=1e-4)
    assert np.sqrt(np.mean((rows - matrix) ** 2)) == pytest.approx(
        contents.described["source"]["difference"], rel=0.05
    )
    assert contents.described["source"]["label"] == "stored"
    energies = np.sum((matrix - matrix.mean(axis=0)) ** 2, axis=1)
    np.testing.assert_allclose(contents["row_energies"], energies, rtol=1e-5)


def test_a_run_s_components_are_on_the_page_at_every_step_that_it_recorded(
    page, toy_store, trained
):
    contents = Contents(page.read_text(encoding="utf-8"))
    (run,) = contents.described["runs"]
    assert (run["label"], run["steps"]) == ("run", [0, 10, 20, 30, 40])
    assert run["features"] == 3
    truth = load_ground_truth(toy_store)
    basis = truth.principal.basis[:, :3]
    trained_encoder = load_encoder(RunFolder(trained), truth)
    aligned = np.asarray(subspace.align(trained_encoder.features()[0], jnp.asarray(basis)))
    np.testing.assert_allclose(contents["run0-40"].reshape(3, 64).T, aligned, atol=1e-4)
    cosines = np.abs(np.sum(aligned * basis, axis=0))
    np.testing.assert_allclose(run["cosines"][-1], cosines, atol=1e-5)
    records = RunFolder(trained).read_metrics()
    assert run["curve"][1] == pytest.approx([r["subspace_distance"][0] for r in records], rel=1e-6)


def test_rows_of_states_that_do_not_rise_with_their_cells_are_found_by_their_cells(tmp_path):
    # A world's states are numbered as they were found; the page counts cells.
    cells, generator = np.array([5, 0, 3, 2]), np.random.default_rng(0)
    matrix = generator.uniform(size=(4, 4)).astype(np.float32)
    seen = generator.normal(size=(4, 7)).astype(np.float32)
    grid = BoxGrid((0, 0), (3, 2), (3, 2))
    save_matrix(tmp_path / "own", matrix, grid, cells=cells, observations=seen)
    contents = Contents(explore([tmp_path / "own"], tmp_path / "page.html").read_text("utf-8"))
    rows = contents["rows"].reshape(4, 6)  # The script looks a state up among the rising cells.
    wanted = np.zeros((4, 6))
    wanted[np.ix_([3, 0, 2, 1], cells)] = matrix
    np.testing.assert_allclose(rows, wanted, atol=1e-4)
    # Checkpoints of a run on the store see what it was trained on.
    truth = build._make_stored_page(open_store(tmp_path / "own"), 2, 2).truth
    np.testing.assert_array_equal(truth.observations, seen)


def test_a_fit_sees_the_states_in_the_units_of_the_store(tmp_path):
    grid = BoxGrid((-1.2, -0.07), (0.5, 0.07), (4, 5))
    save_matrix(tmp_path / "store", np.eye(20, dtype=np.float32), grid)
    truth = build._make_stored_page(open_store(tmp_path / "store"), 2, 2).truth
    np.testing.assert_allclose(truth.observations, grid.centres(), rtol=1e-5)


def test_columns_that_are_cumulants_are_no_states(tmp_path):
    estimates = RowEstimates(MATRIX, 0.1 * MATRIX)
    for name, settings in {"states": {}, "cumulants": {"quantity": CUMULANT_SUMS}}.items():
        save_matrix(tmp_path / name, estimates, observations=FRAMES, settings=settings)
        page = explore([tmp_path / name], tmp_path / "page.html", components=3)
        kind = Contents(page.read_text("utf-8")).described["source"]["kind"]
        assert kind == {"states": "rows", "cumulants": "none"}[name]


FRAMES = np.random.default_rng(1).integers(0, 256, (40, 8, 5, 3), np.uint8)
FRAMES[39] = FRAMES[0]
MATRIX = np.random.default_rng(2).uniform(size=(40, 40)).astype(np.float32)
SHOWN = np.rint(np.linspace(0, 39, 20)).astype(int)


def save_framed(path, matrix=MATRIX, observations=FRAMES):
    grid = BoxGrid((-0.5,) * 3, (4.5, 3.5, 1.5), (5, 4, 2), ("column", "row", "key"))
    settings = {"values": {"key": ["", "key carried"]}}
    cells = np.arange(40)[::-1]
    save_matrix(path, matrix, grid, cells=cells, observations=observations, settings=settings)
    return path


@pytest.fixture(scope="module")
def framed(tmp_path_factory):
    """The page of a game of 40 states, of which it shows 20."""
    places = tmp_path_factory.mktemp("framed")
    return explore([save_framed(places / "store")], places / "page.html", components=6, frames=20)


def test_a_game_without_a_plane_is_shown_by_its_frames(framed):
    contents = Contents(framed.read_text(encoding="utf-8"))
    described = contents.described["frames"]
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(contents.blocks["sheet"]))))
    place = contents["frames"]
    lines, columns = np.divmod(place, described["across"])
    found = [
        sheet[8 * line : 8 * line + 8, 5 * column : 5 * column + 5]
        for line, column in zip(lines, columns, strict=True)
    ]
    np.testing.assert_array_equal(found, FRAMES[SHOWN])
    # State 39 looks like state 0.
    assert (described["different"], described["total"], place[0]) == (19, 40, place[19])
    assert contents.described["axes"] == ["state", "column", "row", "key"]
    cells = 39 - SHOWN
    wanted = [SHOWN, cells % 5, cells // 5 % 4, cells // 20]
    np.testing.assert_array_equal(contents["places"].reshape(4, 20), wanted)
    np.testing.assert_allclose(
        contents["rows"].reshape(20, 20), MATRIX[np.ix_(SHOWN, SHOWN)], atol=1e-4
    )
    basis = np.linalg.svd(MATRIX - MATRIX.mean(axis=0))[0][SHOWN, :6]
    overlap = np.abs(np.sum(contents["left"].reshape(6, 20).T * basis, axis=0))
    np.testing.assert_allclose(overlap, np.sum(basis**2, axis=0), atol=1e-4)


def test_sums_of_cumulants_have_components_and_no_rows_and_edges_that_never_change_are_cropped(
    tmp_path,
):
    seen = np.zeros((40, 12, 10, 4), np.float32)
    seen[np.arange(40), 4 + np.arange(40) % 3, 3, np.arange(40) % 4] = 1.0
    store = save_framed(tmp_path / "own", MATRIX[:, :9], seen)
    contents = Contents(explore([store], tmp_path / "page.html").read_text("utf-8"))
    assert contents.described["source"]["kind"] == "none"
    assert contents["left"].reshape(-1, 40).shape[0] == contents.described["components"] == 8
    assert not {"rows", "right", "task_means"} & set(contents.described["arrays"])
    # Three lines and one column change; a margin of one pixel stays around them.
    assert [contents.described["frames"][side] for side in ("height", "width")] == [5, 3]


@pytest.fixture(scope="module")
def fitted(toy_store, tmp_path_factory):
    """The page of a fit to positions, and the positions from which its rows start."""
    places = tmp_path_factory.mktemp("fitted")
    seen, actions = np.random.default_rng(0).uniform(size=(61, 2)), np.arange(60) % 4
    data = Transitions(
        observation=seen[:-1],
        action=actions,
        next_observation=seen[1:],
        terminated=np.zeros(60, bool),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # Few data.
        fit(data, num_features=3, max_features=20, behaviour="uniform").save(places / "fit")
    page = explore([toy_store, places / "fit"], places / "page.html", components=3)
    return page, data.observation


def test_the_page_of_a_fit_shows_how_often_its_data_visited_each_cell(fitted):
    page, seen = fitted
    contents = Contents(page.read_text(encoding="utf-8"))
    (run,) = contents.described["runs"]
    wanted = np.histogram2d(seen[:, 1], seen[:, 0], 8, ((0, 1), (0, 1)))[0]
    np.testing.assert_array_equal(contents[run["visits"]].reshape(8, 8), wanted)
    assert contents.described["puddleWorld"] is True
    # It has no updates, and another discount than the store.
    assert (run["label"], run["fitted"]) == ("fit (discount 0.95)", True)


def test_a_run_on_another_matrix_is_evaluated_at_the_states_of_this_one_and_says_so(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "_MOST_ROWS_KEPT", 0)
    path, out = tmp_path / "wide", tmp_path / "page.html"
    matrix = np.random.default_rng(0).uniform(size=(64, 64))
    save_matrix(path, matrix, BoxGrid((0, 0), (1, 1), (16, 4)))
    contents = Contents(explore([path, trained], out, components=5).read_text())
    # Nothing is known of a matrix of one's own but what its components tell.
    source = contents.described["source"]
    assert (source["kind"], source["label"]) == ("rank", "rank 5")
    (run,) = contents.described["runs"]
    assert run["label"] == "run (trained on another matrix)"
    # The goal of PuddleWorld means nothing here.
    assert (contents.described["puddleWorld"], run["fitted"]) == (False, False)
    # What it recorded, and its curve, are of 8 x 8 cells.
    assert (run["steps"], run["curve"]) == ([20, 40], None)
    truth = load_ground_truth(path)
    features = load_encoder(RunFolder(trained), truth).features()[0]
    aligned = np.asarray(subspace.align(features, jnp.asarray(truth.principal.basis[:, :3])))
    np.testing.assert_allclose(contents["run0-40"].reshape(3, 64).T, aligned, atol=1e-4)


def test_what_cannot_be_shown_is_refused_in_a_line(toy_store, trained, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    with pytest.raises(InputError, match=r"config\.json"):
        explore([tmp_path], out)
    other = shutil.copytree(toy_store, tmp_path / "other")
    with pytest.raises(InputError, match="one store"):
        explore([toy_store, other], out)
    (tmp_path / "notes").touch()
    with pytest.raises(InputError, match=r"the folder of a store or of training runs, got .*notes"):
        explore([tmp_path / "notes"], out)
    framed = save_framed(tmp_path / "frames")
    seen = r"states seen as by the run .*, observations of shape \[2\], got \[8, 5, 3\]"
    with pytest.raises(InputError, match=seen):
        explore([framed, trained], out)
    with pytest.raises(InputError, match="components >= 1"):
        explore([toy_store], out, components=0)
    own = save_framed(tmp_path / "vectors", observations=np.eye(40, dtype=np.float32))
    with pytest.raises(InputError, match=r"seen as images .not \[40\].*3 coordinates"):
        explore([own], out)
    with pytest.raises(InputError, match="frames >= 2"):
        explore([toy_store], out, frames=1)
    monkeypatch.setattr(rendering, "_MOST_BYTES", 1000)
    framed = save_framed(tmp_path / "framed")
    with pytest.raises(InputError, match="show fewer"):
        explore([framed], out)
    run = shutil.copytree(trained, tmp_path / "run")
    for wrong, expected in (
        (np.array([None]), "an .npy file, .*allow_pickle"),
        (np.ones((63, 3)), "features of 64 states"),
    ):
        np.save(run / "features" / "000000010.npy", wrong)
        with pytest.raises(InputError, match=f"^expected {expected}"):
            explore([toy_store, run], out)
    assert not out.exists()


@pytest.fixture(scope="module")
def walled_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "walled"
    settings = {"horizon": 90, "discount": 0.95, "count_start": False, "points": 1024}
    generate(Transition(arena="two_room", bins=10, block_rows=32, **settings), path)
    return path


@pytest.fixture(scope="module")
def solving_page(walled_store, tmp_path_factory):
    """A walled arena whose rows the page solves for, as it does with larger matrices."""
    out = tmp_path_factory.mktemp("pages") / "chain.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_MOST_ROWS_KEPT", 0)
        return explore([walled_store], out, components=20)


@pytest.mark.integration
def test_a_released_truth_has_the_page_of_the_store_that_it_was_made_from(tmp_path, monkeypatch):
    path, components = tmp_path / "store", 12
    config = Transition(bins=10, horizon=90, discount=0.95, points=256, block_rows=32)
    generate(config, path)
    monkeypatch.setattr(build, "_MOST_ROWS_KEPT", 0)
    stored_page = explore([path], tmp_path / "stored.html", components=components)
    # Released truths have no matrix.
    truth = dataclasses.replace(load_ground_truth(path), matrix=None, error=np.full(50, 1e-3))
    values = 1.03 * truth.principal.singular_values  # as of another refinement
    principal = dataclasses.replace(truth.principal, singular_values=values)
    truth = dataclasses.replace(truth, principal=principal)
    monkeypatch.setattr(runs, "released_names", lambda: ["small"])
    monkeypatch.setattr(build, "load", {"small": truth}.__getitem__)
    out = tmp_path / "released.html"
    page = explore([Path("small")], out, components=components)
    found, expected = (Contents(each.read_text("utf-8")) for each in (page, stored_page))
    for name in ("left", "right", "task_means", "windows2", "counts3"):
        largest = np.abs(expected[name]).max()
        np.testing.assert_allclose(found[name], expected[name], atol=5e-5 * largest, err_msg=name)
    computed, by_store = (contents.described["source"] for contents in (found, expected))
    assert computed["kind"] == by_store["kind"] == "chain"
    # Rows that differ from the store's are not called stored or exact.
    assert computed["label"] == by_store["label"] == "computed"
    assert computed["difference"] == pytest.approx(by_store["difference"], rel=1e-3)
    np.testing.assert_allclose(found.described["singularValues"], values, rtol=1e-6)
    assert found.described["noiseFloor"][0] == 1e-3


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
in_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs the system's chromium and chromedriver"
)


class Browser(webdriver.Chrome):
    """A headless Chromium."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
            options.add_argument(f"--{flag}")
        # With the driver's path, nothing is searched for or downloaded.
        super().__init__(options, webdriver.ChromeService(DRIVER))
        self.set_script_timeout(60)

    def js(self, expression):
        """Evaluate an expression, and wait for it if it is a promise."""
        return self.execute_script(f"return {expression}")

    def array(self, expression):
        return np.asarray(self.js(f"Array.from({expression})"), np.float64)

    def open(self, url, *, width=1280, height=1000):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.get("about:blank")
        self.get(url)
        self.js("explore.ready")

    def settle(self):
        """Wait until what was asked for is drawn."""
        self.js("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def at(self, name, x, y):
        """Point at a place of an element; x, y in [0, 1] from below left."""
        element = self.find_element(By.ID, name)
        self.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        self.settle()  # Frames move when a click puts them in another order.
        wide, high = element.size["width"], element.size["height"]
        pointer = ActionChains(self, duration=0)
        return pointer.move_to_element_with_offset(element, (x - 0.5) * wide, (0.5 - y) * high)

    def key(self, name):
        ActionChains(self).send_keys(name).perform()
        self.settle()

    def choose(self, name, value):
        """Move a slider, or choose an option."""
        self.execute_script(
            "arguments[0].value = arguments[1];"
            "for (const kind of ['input', 'change']) arguments[0].dispatchEvent(new Event(kind));",
            self.find_element(By.ID, name),
            value,
        )

    def troubles(self):
        """Return what the browser's console has said since it was asked."""
        return self.get_log("browser")


@pytest.fixture(scope="module")
def browser():
    with Browser() as found:
        yield found


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs TypeScript: npm install typescript")
def test_types_of_the_page_s_modules_and_of_the_joined_script_hold(tmp_path):
    for name in rendering.SCRIPTS:
        (tmp_path / name).write_text(rendering.read_asset(name), encoding="utf-8")
    # In one file, two modules' declarations of one name clash.
    (tmp_path / "joined.js").write_text(rendering.join_scripts(), encoding="utf-8")
    options = "--noEmit --allowJs --checkJs --strict --lib es2022,dom,dom.iterable"
    options += " --target es2022 --module es2022 --moduleDetection force"
    checked = subprocess.run(
        ["tsc", *options.split(), *sorted(path.name for path in tmp_path.iterdir())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


@in_browser
@pytest.mark.integration
def test_rows_and_values_in_the_browser_are_those_of_the_store(browser, page, toy_store, trained):
    browser.open(page.as_uri())
    matrix = stored(toy_store).astype(np.float64)
    truth = load_ground_truth(toy_store)
    basis = truth.principal.basis.astype(np.float64)
    means = matrix.mean(axis=0)
    for state, d in ((0, 1), (27, 5), (63, 12)):
        np.testing.assert_allclose(browser.array(f"explore.row({state})"), matrix[state], atol=1e-4)
        rank = means + basis[state, :d] @ (basis[:, :d].T @ (matrix - means))
        np.testing.assert_allclose(browser.array(f"explore.rank({state}, {d})"), rank, atol=2e-4)
    # Hover: the state under the pointer, its error as NumPy has it.
    browser.at("row-whole", 3.5 / 8, 5.5 / 8).perform()
    browser.settle()
    assert browser.js("explore.view.state") == 5 * 8 + 3
    row = matrix[43] - means
    lost = row - basis[43, :10] @ (basis[:, :10].T @ (matrix - means))
    error = np.linalg.norm(lost) / np.linalg.norm(row)
    assert browser.js("explore.cache.error") == pytest.approx(error, rel=2e-3)
    browser.choose("d", 4)
    # Paint two cells, one of each sign.
    browser.find_element(By.ID, "clear").click()
    browser.choose("width", 1)
    reward = np.zeros(64)
    for sign, cell in ((1, 9), (-1, 54)):
        browser.choose("brush", sign)
        browser.at("reward-map", (cell % 8 + 0.5) / 8, (cell // 8 + 0.5) / 8).click().perform()
        reward[cell] = sign
    browser.settle()
    np.testing.assert_array_equal(browser.array("explore.reward"), reward)
    value = matrix @ reward
    np.testing.assert_allclose(browser.array("explore.cache.value"), value, atol=3e-4)
    features = np.column_stack([np.ones(64), basis[:, :4]])
    linear = features @ np.linalg.lstsq(features, value)[0]
    np.testing.assert_allclose(browser.array("explore.cache.linear"), linear, atol=5e-4)
    counts = action_steps(load_arena("sutton"), Grid(8), points=1024, seed=0)
    ahead = np.stack([by_action @ value / 1024 for by_action in counts], axis=1)
    found = browser.array("explore.cache.greedy").astype(int)
    best = ahead.max(axis=1)
    np.testing.assert_allclose(ahead[np.arange(64), found], best, atol=1e-3)
    # The learned features are as good a choice.
    browser.choose("features", 0)
    browser.settle()
    features = np.column_stack([np.ones(64), load_encoder(RunFolder(trained), truth).features()[0]])
    linear = features @ np.linalg.lstsq(features, value)[0]
    np.testing.assert_allclose(browser.array("explore.cache.linear"), linear, atol=5e-4)
    assert browser.troubles() == []


@in_browser
@pytest.mark.integration
def test_rows_that_the_page_solves_for_are_those_of_a_walled_store(
    browser, solving_page, walled_store
):
    browser.open(solving_page.as_uri())
    matrix = stored(walled_store).astype(np.float64)
    contents = Contents(solving_page.read_text(encoding="utf-8"))
    cells = np.flatnonzero(contents["states"])
    assert len(cells) == len(matrix) < 100
    found = np.stack([browser.array(f"explore.row({cell})") for cell in cells])
    assert not np.delete(found, cells, axis=1).any()
    found = found[:, cells]
    np.testing.assert_allclose(found.sum(axis=1), matrix.sum(axis=1), rtol=2e-3)
    apart = np.sqrt(np.mean((found - matrix) ** 2))
    assert apart == pytest.approx(contents.described["source"]["difference"], rel=1e-3)
    # Of walls at which agents stand, a cell of this width forgets something.
    assert apart < 0.05 * np.sqrt(np.mean(matrix**2))
    reward = np.zeros(100)
    reward[cells[:7]] = 1.0
    value = browser.array(f"explore.value(Float64Array.from({reward.tolist()}))")[cells]
    np.testing.assert_allclose(value, found @ reward[cells], rtol=1e-3, atol=1e-3)
    assert browser.troubles() == []


@in_browser
@pytest.mark.integration
def test_where_the_data_of_a_fit_were_is_drawn(browser, fitted, page):
    found, seen = fitted
    browser.open(found.as_uri())
    never = 64 - len(np.unique(BoxGrid.unit_square(8).cell(seen)))
    said = browser.js("document.getElementById('visits').innerText").splitlines()
    assert said[0] == f"fit (discount 0.95): no visit to {never} of 64 states"
    assert browser.js("explore.drawPng('coverage').then((b) => b.size)") > 2000
    table = browser.js("explore.writeCsv('coverage')").splitlines()
    assert table[0] == "x,y,fit (discount 0.95)"
    assert sum(int(line.split(",")[2]) for line in table[1:]) == len(seen)
    assert browser.troubles() == []
    browser.open(page.as_uri())
    assert not browser.find_element(By.ID, "coverage").is_displayed()


@in_browser
@pytest.mark.integration
@pytest.mark.parametrize("width", [1280, 360])
def test_a_state_is_chosen_and_a_reward_painted_by_frames(browser, framed, width):
    matrix = MATRIX[np.ix_(SHOWN, SHOWN)].astype(np.float64)
    component = Contents(framed.read_text("utf-8"))["left"].reshape(6, 20)[1]
    browser.open(framed.as_uri() + "#o=2&r=", width=width)
    assert browser.js("document.documentElement.scrollWidth") <= width
    # Frames come by falling values: the first at the top left.
    browser.at("row-whole", 0.01, 0.99).click().perform()
    browser.key(Keys.ARROW_RIGHT)
    assert browser.js("explore.view.state") == np.argsort(-component)[1]
    browser.choose("order", "row")
    state = browser.js("explore.view.state")
    order = np.argsort(-matrix[state])
    browser.at("row-whole", 0.01, 0.99).click_and_hold().perform()
    browser.settle()  # The text above the frames changes, and may move them from below the pointer.
    ActionChains(browser).release().perform()
    browser.settle()
    chosen = browser.js("explore.view.state")
    assert chosen == order[0]
    np.testing.assert_allclose(browser.array("explore.cache.row"), matrix[chosen], atol=1e-4)
    assert f"state = {SHOWN[chosen]}" in browser.js("document.getElementById('chosen').ariaLabel")
    # The click has put the frames in order again.
    order = np.argsort(-matrix[chosen])
    browser.find_element(By.ID, "goal").click()
    browser.choose("brush", -1)
    browser.at("reward-map", 0.01, 0.99).click().perform()
    browser.key(Keys.ARROW_RIGHT)
    browser.key(Keys.SPACE)
    reward = np.zeros(20)
    reward[order[0]], reward[np.append(order, order)[1:][list(order).index(chosen)]] = -1, -1
    reward[chosen] += chosen != order[0]
    np.testing.assert_array_equal(browser.array("explore.reward"), reward)
    np.testing.assert_allclose(browser.array("explore.cache.value"), matrix @ reward, atol=2e-4)
    table = browser.js("explore.writeCsv('rows')").splitlines()
    assert (table[0], len(table)) == ("state,column,row,key,stored,rank 6", 21)
    assert browser.js("explore.drawPng('rows').then((b) => b.size)") > 5000
    assert browser.troubles() == []


@in_browser
@pytest.mark.integration
def test_keys_the_address_and_exports_work(browser, page, toy_store):
    browser.open(page.as_uri() + "#s=20&d=3&r=0.2.1_a.1.2&t=20&f=1&m=linear")
    assert np.flatnonzero(browser.array("explore.reward")).tolist() == [0, 1, 10]
    assert browser.js("explore.reward[10]") == -1
    assert browser.js("explore.encodeView()") == "s=20&d=3&m=linear&t=20&f=1&r=0.2.1_a.1.2"
    browser.js("document.getElementById('row-whole').focus()")
    arrows = (Keys.ARROW_RIGHT, 21), (Keys.ARROW_UP, 29), (Keys.ARROW_LEFT, 28)
    for key, state in (*arrows, (Keys.ARROW_DOWN, 20)):
        browser.key(key)
        assert browser.js("explore.view.state") == state
    browser.key("]")
    browser.key(".")
    time.sleep(0.4)
    assert browser.js("location.hash").startswith("#s=20&d=4&m=linear&t=30")
    table = browser.js("explore.writeCsv('rows')").splitlines()
    assert (table[0], len(table)) == ("x,y,stored,rank 4", 65)
    cells = np.asarray([line.split(",") for line in table[1:]], np.float64)
    np.testing.assert_allclose(cells[:, 2], stored(toy_store)[20], atol=1e-4)
    for section in ("rows", "components", "reward", "spectrum"):
        assert browser.js(f"explore.drawPng('{section}').then((b) => b.size)") > 5000
    assert browser.troubles() == []
