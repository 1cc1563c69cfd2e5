// @ts-check
// The page's sections, their controls, the address that holds the view, and exports.

import {
  $, K, N, arrays, columns, describePlace, description, formatNumber, formatShare, frames, get, loadArrays, locate,
  nearestState, rows, runs, source, states, unit,
} from "./data.js";
import {
  DASHES, contextOf, drawActions, drawChart, drawFrame, drawLine, drawMap, findExtent, forgetSizes, layOutEnds, layoutOf,
  markCell, orderFrames, seriesColour,
} from "./drawing.js";
import {
  chooseActions, combine, completeSums, computeRankRow, computeRow, computeValue, dot, energyLeft, energyShare,
  moves, norm, orthonormalise, subtract,
} from "./sums.js";

/**
 * What the reader has chosen; `step` is infinite for the last one, `features` -1 for the true components.
 * `order` of frames is "number", "row", "value" or the number of a component.
 */
const view = {
  order: "number",
  state: 0, d: Math.min(10, K), root: true, first: 0, step: Infinity, features: -1, arrows: true, pinned: false,
};
const reward = new Float64Array(N);
/** What is drawn. */
const cache = {
  rowOf: -1,
  row: new Float64Array(N),
  rank: new Float64Array(N),
  error: NaN,
  /** @type {Map<string, Float64Array[]>} */
  bases: new Map(),
  /** @type {Float64Array | null} */
  value: null,
  /** @type {Int8Array | null} */
  greedy: null,
  /** @type {Float64Array[] | null} */
  weightsOf: null,
  /** @type {number[]} */
  weights: [],
  variation: 0,
  linear: new Float64Array(N),
  /** @type {Int8Array | null} */
  greedyLinear: null,
  rewardDrawn: false,
};
const allSteps = [...new Set(runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
let perPage = 5;
/** @type {number | null} */
let cursor = null;

/** @param {string} id */
const canvasOf = (id) => get(id, HTMLCanvasElement);
/** @param {string} id */
const inputOf = (id) => get(id, HTMLInputElement);
/** @param {string} id */
const choiceOf = (id) => get(id, HTMLSelectElement);
/** @returns {NodeListOf<HTMLInputElement>} */
const sliders = () => document.querySelectorAll("input.d");
/** @param {number} count */
const formatCount = (count) => count.toLocaleString("en");

/**
 * @param {string} id
 * @param {string} text
 */
function label(id, text) { $(id).setAttribute("aria-label", text); }

/* ---- The address ---- */

/** Write the view and the reward: runs of painted cells, in base 36. */
function encodeView() {
  const parts = [`s=${view.state}`, `d=${view.d}`];
  if (!view.root) parts.push("m=linear");
  if (view.order !== "number") parts.push(`o=${view.order}`);
  if (view.first) parts.push(`c=${view.first + 1}`);
  if (Number.isFinite(view.step)) parts.push(`t=${view.step}`);
  if (view.features >= 0) parts.push(`f=${view.features + 1}`);
  if (!view.arrows) parts.push("a=0");
  const painted = [];
  for (let i = 0; i < N;) {
    let end = i + 1;
    while (end < N && reward[end] === reward[i]) end++;
    if (reward[i]) painted.push(`${i.toString(36)}.${(end - i).toString(36)}.${reward[i] > 0 ? 1 : 2}`);
    i = end;
  }
  parts.push(`r=${painted.join("_")}`);
  return parts.join("&");
}

/** @param {string} text */
function decodeView(text) {
  const entries = new URLSearchParams(text.replace(/^#/, ""));
  /**
   * @param {string} name
   * @param {number} low
   * @param {number} high
   * @param {number} otherwise
   */
  const number = (name, low, high, otherwise) => {
    const value = entries.has(name) ? Number(entries.get(name)) : NaN;
    return Number.isInteger(value) && value >= low && value <= high ? value : otherwise;
  };
  const middle = frames ? 0 : nearestState(Math.floor(rows / 2) * columns + Math.floor(columns / 2));
  view.state = nearestState(number("s", 0, N - 1, middle));
  view.pinned = entries.has("s");
  view.d = number("d", 1, K, Math.min(10, K));
  view.root = entries.get("m") !== "linear";
  const order = entries.get("o") ?? "";
  view.order = [...choiceOf("order").options].some(({ value }) => value === order) ? order : "number";
  view.first = number("c", 1, K, 1) - 1;
  view.step = number("t", 0, 1e15, Infinity);
  view.features = number("f", 1, runs.length, 0) - 1;
  view.arrows = entries.get("a") !== "0";
  const painted = entries.get("r");
  if (painted === null) return void paintGoal();
  reward.fill(0);
  for (const part of painted.split("_").filter(Boolean)) {
    const [start, length, sign] = part.split(".");
    const from = parseInt(start, 36), to = Math.min(N, from + parseInt(length, 36));
    for (let i = from; i < to; i++) if (arrays.states[i]) reward[i] = sign === "2" ? -1 : 1;
  }
}

let addressTimer = 0;
function keepAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, "", `#${encodeView()}`), 150);
}

/* ---- Rows ---- */

function drawRows() {
  if (source.kind === "none") return;
  const { state, d } = view;
  if (cache.rowOf !== state) { cache.row = computeRow(state); cache.rowOf = state; }
  const row = cache.row, rank = computeRankRow(state, d), lost = subtract(row, rank);
  cache.rank = rank;
  // The state's own cell counts the start and would leave all others in the dark.
  const high = findExtent(row, state)[1], limit = Math.max(...findExtent(lost, state).map(Math.abs)) || 1;
  const options = { root: view.root, overlay: markCell(state) };
  drawMap(canvasOf("row-whole"), row, 0, high, { ...options, beyond: row[state] });
  drawMap(canvasOf("row-rank"), rank, 0, high, { ...options, beyond: rank[state] });
  drawMap(canvasOf("row-lost"), lost, -limit, limit, { ...options, signed: true, beyond: lost[state] });
  const lostEnergy = source.kind === "rank" ? energyLeft(state, d) : dot(lost, lost);
  let energy = 0;
  const { task_means: tasks, state_means: means } = arrays;
  if (source.kind === "rank") energy = arrays.row_energies[state];
  else for (const cell of states) energy += (row[cell] - tasks[cell] - means[state]) ** 2;
  cache.error = Math.sqrt(lostEnergy / energy);
  document.querySelectorAll("[data-d]").forEach((element) => { element.textContent = String(d); });
  if (frames) {
    drawFrame(canvasOf("chosen"), state, frames);
    label("chosen", `Frame of the chosen state: ${describePlace(state)}`);
  }
  $("rows-status").textContent =
    `${frames ? "Chosen:" : "State"} ${describePlace(state)}. Rank ${d} leaves ${formatShare(cache.error)} of its centred row` +
    ` (root mean square ${formatNumber(Math.sqrt(lostEnergy / states.length))} a ${unit}); all states together: ` +
    `${formatShare(Math.sqrt(Math.max(0, 1 - energyShare(d))))}.`;
  /** @param {Float64Array} map */
  const range = (map) => `from ${formatNumber(findExtent(map)[0])} to ${formatNumber(findExtent(map)[1])}`;
  label("row-whole", `${$("source-title").textContent} at ${describePlace(state)}: ${range(row)}`);
  label("row-rank", `The same row at rank ${d}: ${range(rank)}`);
  const most = formatNumber(Math.max(limit, Math.abs(lost[state])));
  label("row-lost", `What rank ${d} loses of the row: at most ${most} in a ${unit}`);
}

/** Order the frames anew: not while the pointer moves, since they would flee from it. */
function sortFrames() {
  if (!frames || source.kind === "none") return;
  const { order, state } = view, component = Number(order) - 1;
  orderFrames(order === "row" ? computeRow(state) : order === "value" ? computeValue(reward)
    : order === "number" ? null : arrays.left.subarray(component * N, (component + 1) * N));
  cache.rewardDrawn = false;
  requestDrawing("rows", "reward");
}

/* ---- Components ---- */

/**
 * Return the index of the latest step that a run has kept up to the one in view.
 * @param {import("./data.js").Run} run
 */
function stepOf(run) {
  return Math.max(0, run.steps.filter((step) => step <= view.step).length - 1);
}

/**
 * Name a kept step of a run; a fit of recorded data has no updates.
 * @param {import("./data.js").Run} run
 * @param {number} index
 */
function nameStep(run, index) {
  return run.fitted ? "fitted" : `update ${formatCount(run.steps[index])}`;
}

/**
 * Describe what the page holds of a run with more features than the page has components.
 * @param {import("./data.js").Run} run
 */
function describeDirections(run) {
  const count = run.cosines[0].length;
  return `the ${count} directions nearest to the true components in the span of ${run.features} features`;
}

function layOutComponents() {
  const sets = $("component-maps"), width = sets.clientWidth || 1000;
  perPage = Math.min(K, width < 480 ? 3 : width < 800 ? 5 : 10);
  if (frames) perPage = Math.min(K, width < 480 ? 2 : 5);
  sets.textContent = "";
  for (const name of ["true", ...runs.map((run) => run.label)]) {
    const set = document.createElement("div"), heading = document.createElement("div");
    set.className = "set";
    set.style.setProperty("--count", String(perPage));
    heading.append(document.createElement("span"), document.createElement("small"));
    heading.children[0].textContent = name;
    set.append(heading);
    for (let i = 0; i < perPage; i++) {
      const figure = document.createElement("figure"), canvas = document.createElement("canvas");
      canvas.className = "map";
      canvas.setAttribute("role", "img");
      figure.append(canvas, document.createElement("figcaption"));
      set.append(figure);
    }
    sets.append(set);
  }
}

function drawComponents() {
  const { first } = view, last = Math.min(first + perPage, K);
  $("component-range").textContent = `${first + 1} to ${last}`;
  get("earlier", HTMLButtonElement).disabled = first === 0;
  get("later", HTMLButtonElement).disabled = last >= K;
  [...$("component-maps").children].forEach((set, place) => {
    /** @type {import("./data.js").Run | undefined} */
    const run = runs[place - 1];
    const index = run ? stepOf(run) : 0;
    const maps = arrays[run ? run.arrays[index] : "left"];
    const d = run ? run.cosines[index].length : K;
    set.children[0].children[1].textContent = !run ? "left singular vectors"
      : `${run.steps[index] > view.step ? "first kept: " : ""}${nameStep(run, index)}` +
        (d < run.features ? `, ${describeDirections(run)}` : "");
    set.querySelectorAll("figure").forEach((figure, i) => {
      const k = first + i, visible = k < d && k < K && Boolean(maps);
      figure.style.visibility = visible ? "visible" : "hidden";
      if (!visible) return;
      let limit = 0;
      for (let cell = k * N; cell < (k + 1) * N; cell++) limit = Math.max(limit, Math.abs(arrays.left[cell]));
      const canvas = /** @type {HTMLCanvasElement} */ (figure.children[0]);
      const map = maps.subarray(k * N, (k + 1) * N), layout = frames ? layOutEnds(map) : undefined;
      drawMap(canvas, map, -limit, limit, { signed: true, layout });
      const caption = run ? `|cos| ${run.cosines[index][k]?.toFixed(3) ?? "–"}`
        : `${k + 1}: ±${formatNumber(limit, 2)}`;
      figure.children[1].textContent = caption;
      const name = run ? `${run.label}, ${nameStep(run, index)}` : "true";
      canvas.setAttribute("aria-label", `Component ${k + 1}, ${name}: ${caption}` +
        (layout ? `; greatest at ${describePlace(layout.cells[0])}, ` +
          `least at ${describePlace(layout.cells[layout.cells.length - 1])}` : ""));
    });
  });
  if (allSteps.length > 1) {
    const last = Math.min(view.step, allSteps[allSteps.length - 1]);
    inputOf("step").value = String(allSteps.filter((step) => step <= last).length - 1);
    $("step-out").textContent = formatCount(last);
  }
  drawCurves();
}

function drawCurves() {
  const curves = runs.flatMap(({ label, features, curve }) => (curve ? [{ label, features, curve }] : []));
  $("curves-figure").hidden = curves.length === 0;
  if (!curves.length) return;
  $("floor-lead").hidden = !description.noiseFloor;
  const lines = curves.map(({ curve: [steps, distances] }) =>
    steps.map((step, i) => /** @type {[number, number | null]} */ ([step, distances[i]])));
  const floors = (description.noiseFloor ?? []).flatMap((floor, i) =>
    floor !== null && floor > 0 && curves.some(({ features }) => features === i + 1) ? [{ d: i + 1, floor }] : []);
  const levels = floors.map(({ floor }) => floor);
  const floorText = `noise floor: ${floors.map(({ d, floor }) => `${formatNumber(floor)} (d = ${d})`).join(", ")}`;
  const heights = [...lines.flat().map(([, v]) => v ?? 0), ...levels].filter((v) => v > 0);
  const now = Math.min(view.step, allSteps[allSteps.length - 1]);
  const texts = curves.map(({ label, curve: [steps, distances] }) => {
    const index = steps.filter((step) => step <= now).length - 1;
    return [label, formatNumber(index < 0 ? null : distances[index])];
  });
  drawChart(canvasOf("curves"), { lines, x: "update", y: "subspace distance", logY: true, levels, marks: [now],
    xRange: [0, Math.max(1, ...lines.flat().map(([step]) => step))],
    yRange: [Math.min(...heights) * 0.8, Math.max(...heights) * 1.1] });
  label("curves", `Subspace distance against updates. At update ${now}: ` +
    texts.map((pair) => pair.join(" ")).join(", ") + (floors.length ? `; ${floorText}` : ""));
  const legend = $("legend");
  legend.textContent = "";
  texts.forEach((pair, index) => {
    const item = document.createElement("li"), dashes = DASHES[index % DASHES.length].join(" ");
    item.innerHTML = `<svg width="34" height="8" aria-hidden="true"><line x1="1" y1="4" x2="33" y2="4"` +
      ` stroke="${seriesColour(index)}" stroke-width="2.5" stroke-dasharray="${dashes}"/></svg>`;
    item.append(pair.join(": "));
    legend.append(item);
  });
  if (floors.length) {
    const item = document.createElement("li");
    item.textContent = floorText;
    legend.append(item);
  }
}

function drawCoverage() {
  const fits = runs.flatMap(({ label, visits }) => (visits ? [{ name: label, visits }] : [])), maps = $("visits");
  $("coverage").hidden = !fits.length;
  fits.forEach(({ name, visits }, index) => {
    if (!maps.children[index]) {
      const figure = document.createElement("figure");
      figure.innerHTML = `<figcaption></figcaption><canvas id="${visits}" class="map" role="img"></canvas>` +
        `<div class="bar" data-bar="${visits}"></div>`;
      maps.append(figure);
    }
    const counts = arrays[visits], never = states.filter((cell) => !counts[cell]).length;
    const text = `${name}: ` +
      (never ? `no visit to ${formatCount(never)} of ${formatCount(states.length)} states` : "every state is visited");
    maps.children[index].children[0].textContent = text;
    drawMap(canvasOf(visits), counts, 0, findExtent(counts)[1], { root: true });
    label(visits, text);
  });
}

function drawSpectrum() {
  const values = description.singularValues, { d } = view;
  const positive = values.filter((v) => v > 0), last = values.length;
  /** @type {[number, number]} */
  const xRange = [1, Math.max(2, last)];
  drawChart(canvasOf("values"), { lines: [values.map((v, i) => [i + 1, v])], x: "component", y: "singular value",
    logY: true, xRange, marks: [d], yRange: [Math.min(...positive) * 0.9, values[0] * 1.1] });
  drawChart(canvasOf("energy"), { lines: [values.map((_, i) => [i + 1, 100 * energyShare(i + 1)])],
    x: "components d", y: "energy, %", xRange, yRange: [0, 100], marks: [d] });
  const value = formatNumber(values[d - 1]), share = formatShare(energyShare(d));
  $("spectrum-status").textContent = `d = ${d}: singular value ${value}, ${share} of the energy`;
  const [most, least] = [formatNumber(values[0]), formatNumber(values[last - 1])];
  label("values", `Singular values, from ${most} to ${least}; number ${d} is ${value}`);
  label("energy", `Energy captured: ${share} by ${d} components, ${formatShare(energyShare(last))} by ${last}`);
}

/* ---- Rewards ---- */

/** Return an orthonormal basis of the chosen features and their number; null before they are loaded. */
function chosenBasis() {
  /** @type {import("./data.js").Run | undefined} */
  const run = runs[view.features];
  const name = run ? run.arrays[stepOf(run)] : "left", most = run ? run.cosines[0].length : K;
  if (!arrays[name]) return null;
  let basis = cache.bases.get(name);
  if (!basis) {
    if (cache.bases.size > 4) cache.bases.clear();
    basis = orthonormalise(arrays[name], most);
    cache.bases.set(name, basis);
  }
  return { run, basis, d: run ? most : view.d };
}

function drawReward() {
  const chosen = chosenBasis();
  if (!chosen || source.kind === "none") return;
  const { run, basis, d } = chosen;
  if (!cache.value) {
    cache.value = computeValue(reward);
    cache.greedy = moves.length ? chooseActions(reward, cache.value) : null;
    cache.weightsOf = null;
  }
  const values = cache.value;
  if (cache.weightsOf !== basis) {  // Least squares: the basis is orthonormal.
    cache.weights = basis.map((feature) => dot(feature, values));
    cache.weightsOf = basis;
    cache.variation = norm(subtract(values, combine(cache.weights, basis, 0)));
  }
  const linear = combine(cache.weights, basis, d), lost = subtract(values, linear);
  cache.linear = linear;
  if (!cache.rewardDrawn) { drawRewardMap(); cache.rewardDrawn = true; }
  cache.greedyLinear = moves.length ? chooseActions(reward, linear) : null;
  const { variation, greedy, greedyLinear } = cache;
  const [low, high] = findExtent(values), limit = Math.max(...findExtent(lost).map(Math.abs)) || 1;
  const [least, most] = high > low ? [low, high] : [low - 1, low + 1];
  /** @param {Int8Array | null} best */
  const over = (best) => (view.arrows && best ? drawActions(best) : null);
  drawMap(canvasOf("value-whole"), values, least, most, { overlay: over(greedy) });
  drawMap(canvasOf("value-linear"), linear, least, most, { overlay: over(greedyLinear) });
  drawMap(canvasOf("value-lost"), lost, -limit, limit, { signed: true });
  for (const slider of sliders())
    if (slider.closest("#reward")) slider.disabled = Boolean(run);  // A run has the d that it has.
  const learned = run && d < run.features ? describeDirections(run) : `${d} features`;
  const name = run ? `${learned} of ${run.label}, ${nameStep(run, stepOf(run))}`
    : `${d} true component${d === 1 ? "" : "s"}`;
  $("linear-title").textContent = `linear in ${name}`;
  let text = variation
    ? `${name[0].toUpperCase()}${name.slice(1)} and a constant leave ` +
      `${formatShare(norm(lost) / variation)} of the value's standard deviation.`
    : "No reward: the value is 0 everywhere.";
  if (greedy && greedyLinear && variation) {
    const decided = states.filter((cell) => greedy[cell] >= 0);
    const same = decided.filter((cell) => greedy[cell] === greedyLinear[cell]).length;
    text += ` The greedy action is the same in ${formatShare(same / decided.length)} of the states.`;
  }
  $("reward-status").textContent = text;
  label("value-whole", `Value of the painted reward: from ${formatNumber(low)} to ${formatNumber(high)}`);
  label("value-linear", `The value, linear in ${name}: ${text}`);
  label("value-lost", `Difference: at most ${formatNumber(limit)} in a ${unit}`);
}

function drawRewardMap() {
  const overlay = cursor === null ? null : markCell(cursor);
  drawMap(canvasOf("reward-map"), reward, -1, 1, { signed: true, overlay });
  const plus = reward.filter((value) => value > 0).length, minus = reward.filter((value) => value < 0).length;
  label("reward-map", `Reward: +1 in ${plus} ${unit}s, −1 in ${minus} ${unit}s` +
    (cursor === null ? "" : `; brush at ${describePlace(cursor)}`));
}

/** Paint the goal of PuddleWorld, or the chosen state where the page knows no goal. */
function paintGoal() {
  reward.fill(0);
  if (!description.puddleWorld) reward[view.state] = 1;
  else for (const cell of states) {
    const x = (cell % columns + 0.5) / columns, y = (Math.floor(cell / columns) + 0.5) / rows;
    if ((x - 0.85) ** 2 + (y - 0.85) ** 2 < 0.01) reward[cell] = 1;
  }
}

/** @param {number} cell */
function paintAround(cell) {
  const radius = Number(choiceOf("width").value) / 2, value = Number(choiceOf("brush").value);
  const { cells, columns, rows } = layoutOf(canvasOf("reward-map")), place = cells.indexOf(cell);
  const row = Math.floor(place / columns), column = place % columns, reach = Math.ceil(radius);
  for (let i = Math.max(0, row - reach); i <= Math.min(rows - 1, row + reach); i++)
    for (let j = Math.max(0, column - reach); j <= Math.min(columns - 1, column + reach); j++) {
      const inside = (i - row) ** 2 + (j - column) ** 2 <= radius ** 2, near = cells[i * columns + j];
      if (inside && arrays.states[near]) reward[near] = value;
    }
  updateReward();
}

/**
 * Paint from one cell to another: a quick pointer leaves no gaps.
 * @param {number} from
 * @param {number} to
 */
function paintAlong(from, to) {
  const { cells, columns } = layoutOf(canvasOf("reward-map")), start = cells.indexOf(from), end = cells.indexOf(to);
  const row = Math.floor(start / columns), column = start % columns;
  const down = Math.floor(end / columns) - row, across = end % columns - column;
  const count = Math.max(1, Math.abs(down), Math.abs(across));
  for (let i = 1; i <= count; i++)
    paintAround(cells[(row + Math.round(down * i / count)) * columns + column + Math.round(across * i / count)]);
}

function updateReward() { forgetReward(); requestDrawing("reward"); }
function forgetReward() { cache.value = null; cache.rewardDrawn = false; }

/* ---- Drawing on request: a section at most once a frame ---- */

const SECTIONS = {
  rows: drawRows, components: drawComponents, coverage: drawCoverage, reward: drawReward, spectrum: drawSpectrum,
};
/** @typedef {keyof typeof SECTIONS} SectionName */
/** @type {Set<SectionName>} */
const requested = new Set();

/** @param {SectionName[]} names */
function requestDrawing(...names) {
  if (requested.size === 0) requestAnimationFrame(drawRequested);
  names.forEach((name) => requested.add(name));
  keepAddress();
}

function requestAll() { requestDrawing("rows", "components", "coverage", "reward", "spectrum"); }

function drawRequested() {
  const names = [...requested];
  requested.clear();
  names.forEach((name) => SECTIONS[name]());
}

function redrawAll() {
  forgetSizes();
  cache.rewardDrawn = false;
  layOutComponents();
  view.first -= view.first % perPage;
  requestAll();
}

/** @param {number} d */
function setD(d) {
  view.d = Math.min(K, Math.max(1, d));
  sliders().forEach((slider) => { slider.value = String(view.d); });
  // At once, so that maps follow the slider.
  drawRows();
  drawSpectrum();
  if (view.features < 0) drawReward();
  keepAddress();
}

/** @param {number} step */
function setStep(step) {
  view.step = step;
  requestDrawing("components");
  if (view.features >= 0) requestDrawing("reward");
}

/** @param {number} state */
function setState(state) {
  if (state === view.state) return;
  view.state = state;
  requestDrawing("rows");
}

/* ---- Exports ---- */

/**
 * @param {string} name
 * @param {Blob} blob
 */
function download(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * Draw a section's canvases and captions where they stand, as a PNG file.
 * @param {string} id
 * @returns {Promise<Blob>}
 */
function drawPng(id) {
  const section = $(id), frame = section.getBoundingClientRect(), scale = 2, margin = 12;
  const content = "h2, .status, figcaption, .bar span, .set > div span, .set > div small, #legend svg, #legend li, " +
    "#spectrum-status, canvas";
  const parts = [...section.querySelectorAll(content)]
    .map((element) => ({ element, box: element.getBoundingClientRect() }))
    .filter(({ element, box }) => box.width > 0 && getComputedStyle(element).visibility !== "hidden")
    .sort((one, other) => one.box.top - other.box.top);
  // Close the gaps that controls and paragraphs leave.
  let bottom = parts[0].box.top, closed = parts[0].box.top;
  const placed = parts.map((part) => {
    closed += Math.max(0, part.box.top - bottom - 14);
    bottom = Math.max(bottom, part.box.bottom);
    return { ...part, x: part.box.left - frame.left + margin, y: part.box.top - closed + margin };
  });
  const sheet = document.createElement("canvas");
  sheet.width = scale * (frame.width + 2 * margin);
  sheet.height = scale * (bottom - closed + 2 * margin);
  const context = contextOf(sheet);
  context.scale(scale, scale);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.imageSmoothingEnabled = false;
  for (const { element, box, x, y } of placed) {
    if (element instanceof HTMLCanvasElement) context.drawImage(element, x, y, box.width, box.height);
    else if (element instanceof SVGElement) {
      const stroke = /** @type {Element} */ (element.children[0]);
      context.strokeStyle = stroke.getAttribute("stroke") ?? "";
      context.lineWidth = 2.5;
      const dashes = stroke.getAttribute("stroke-dasharray") ?? "";
      context.setLineDash(dashes.split(" ").filter(Boolean).map(Number));
      drawLine(context, [[x, y + box.height / 2], [x + box.width, y + box.height / 2]]);
    } else {
      const style = getComputedStyle(element), indent = element.querySelector("svg") ? 41 : 0;
      context.fillStyle = style.color;
      context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
      context.textBaseline = "top";
      const height = parseFloat(style.lineHeight) || 1.3 * parseFloat(style.fontSize);
      wrapText(context, element.textContent ?? "", box.width + 2 - indent).forEach((text, i) => {
        const shift = style.textAlign === "center" ? (box.width - context.measureText(text).width) / 2 : 0;
        context.fillText(text, x + indent + shift, y + i * height);
      });
    }
  }
  return new Promise((resolve, reject) => sheet.toBlob(
    (blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
function wrapText(context, text, width) {
  const lines = [""];
  for (const word of text.trim().split(/(?<=[-\s])/)) {  // Lines may end after a hyphen.
    const last = lines.length - 1, longer = lines[last] + word;
    if (context.measureText(longer.trimEnd()).width <= width || !lines[last]) lines[last] = longer;
    else lines.push(word);
  }
  return lines.map((line) => line.trimEnd());
}

/**
 * Write a section's numbers as CSV: a line for each state, or for each component.
 * @param {string} id
 */
function writeCsv(id) {
  if (id === "spectrum") {
    const { singularValues, noiseFloor } = description;
    const header = ["component", "singular value", "energy captured", "noise floor"];
    return joinCsv(header, singularValues.map((value, i) => [i + 1, value, energyShare(i + 1), noiseFloor?.[i] ?? ""]));
  }
  /** @type {[string, (cell: number) => string | number][]} */
  const fields = description.axes.map((axis, i) => [axis, (cell) => +locate(cell)[i].toPrecision(9)]);
  /**
   * @param {string} name
   * @param {ArrayLike<number>} values
   * @param {number} at Where the cells begin.
   */
  const add = (name, values, at = 0) => fields.push([name, (cell) => values[at + cell]]);
  if (id === "rows") {
    add(source.label, cache.row);
    add(`rank ${view.d}`, cache.rank);
  } else if (id === "reward") {
    if (!cache.value) drawReward();
    /** @param {Int8Array | null} best */
    const action = (best) => (/** @type {number} */ cell) => (best && description.moves?.names[best[cell]]) || "";
    add("reward", reward);
    add("value", cache.value ?? []);
    add($("linear-title").textContent ?? "", cache.linear);
    if (description.moves)
      fields.push(["greedy action", action(cache.greedy)], ["greedy action, linear", action(cache.greedyLinear)]);
  } else if (id === "coverage") {
    for (const run of runs) if (run.visits) add(run.label, arrays[run.visits]);
  } else {
    const learned = runs.map((run) => {
      const index = stepOf(run), d = run.cosines[0].length;
      return { name: `${run.label} at ${run.steps[index]}`, maps: arrays[run.arrays[index]], d };
    });
    for (let k = view.first; k < Math.min(K, view.first + perPage); k++)
      for (const { name, maps, d } of [{ name: "true", maps: arrays.left, d: K }, ...learned])
        if (k < d) add(`${name}: ${k + 1}`, maps, k * N);
  }
  return joinCsv(fields.map(([name]) => name), [...states].map((cell) => fields.map(([, value]) => value(cell))));
}

/**
 * @param {string[]} header
 * @param {(string | number)[][]} lines
 */
function joinCsv(header, lines) {
  /** @param {string} text */
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return [header.map(quote), ...lines].map((cells) => cells.join(",")).join("\n") + "\n";
}

/* ---- Listening ---- */

/**
 * Return the cell under the pointer.
 * @param {HTMLCanvasElement} canvas
 * @param {PointerEvent} event
 */
function cellAt(canvas, event) {
  const box = canvas.getBoundingClientRect(), { cells, columns, rows } = layoutOf(canvas);
  const column = Math.floor((event.clientX - box.left) / box.width * columns);
  const row = Math.floor((event.clientY - box.top) / box.height * rows);
  const place = Math.min(rows - 1, Math.max(0, row)) * columns + Math.min(columns - 1, Math.max(0, column));
  return cells[Math.min(place, cells.length - 1)];
}

/** @type {Record<string, [number, number]>} */
const KEY_MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Return the state that an arrow key leads to from a cell; null for other keys.
 * @param {HTMLCanvasElement} canvas
 * @param {number} cell
 * @param {KeyboardEvent} event
 */
function followKey(canvas, cell, event) {
  if (!(event.key in KEY_MOVES)) return null;
  event.preventDefault();
  const [dx, dy] = KEY_MOVES[event.key];
  const { cells, columns, rows } = layoutOf(canvas), place = cells.indexOf(cell);
  let column = place % columns, row = Math.floor(place / columns), reached = cell;
  const inside = () => column >= 0 && column < columns && row >= 0 && row < rows;
  for (let left = event.shiftKey ? 5 : 1; left > 0; left--) {
    do { column += dx; row += dy; } while (inside() && !arrays.states[cells[row * columns + column]]);
    if (!inside()) break;
    reached = cells[row * columns + column];
  }
  return reached;
}

function listen() {
  for (const slider of sliders()) slider.addEventListener("input", () => setD(Number(slider.value)));
  choiceOf("scale").addEventListener("change", () => {
    view.root = choiceOf("scale").value === "root";
    requestDrawing("rows");
  });
  for (const canvas of /** @type {NodeListOf<HTMLCanvasElement>} */ (document.querySelectorAll(".pick"))) {
    /** @param {PointerEvent} event */
    const pick = (event) => setState(nearestState(cellAt(canvas, event)));
    canvas.addEventListener("pointermove", (event) => {
      if (!view.pinned && event.pointerType !== "touch") pick(event);
    });
    canvas.addEventListener("pointerdown", (event) => {
      // The new text above may move the canvas from below the pointer before its release: still a click.
      canvas.setPointerCapture(event.pointerId);
      const again = view.pinned && nearestState(cellAt(canvas, event)) === view.state;
      view.pinned = event.pointerType !== "touch" && !again;
      pick(event);
    });
    canvas.addEventListener("click", sortFrames);
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sortFrames();
      const cell = followKey(canvas, view.state, event);
      if (cell !== null) setState(cell);
    });
  }
  $("order").addEventListener("change", () => {
    view.order = choiceOf("order").value;
    sortFrames();
  });
  listenToBrush();
  listenToSteps();
  $("features").addEventListener("change", () => {
    view.features = Number(choiceOf("features").value);
    requestDrawing("reward");
  });
  $("arrows").addEventListener("change", () => {
    view.arrows = inputOf("arrows").checked;
    requestDrawing("reward");
  });
  $("earlier").addEventListener("click", () => {
    view.first = Math.max(0, view.first - perPage);
    requestDrawing("components");
  });
  $("later").addEventListener("click", () => {
    view.first = Math.min(K - 1, view.first + perPage);
    requestDrawing("components");
  });
  document.addEventListener("click", async (event) => {
    if (!(event.target instanceof HTMLElement)) return;
    const { png, csv } = event.target.dataset;
    const name = `${description.title.replace(/[^\w.-]+/g, "-").toLowerCase()}-${png ?? csv}`;
    if (png) download(`${name}.png`, await drawPng(png));
    if (csv) download(`${name}.csv`, new Blob([writeCsv(csv)], { type: "text/csv" }));
  });
  window.addEventListener("hashchange", () => {
    decodeView(location.hash);
    setControls();
    forgetReward();
    sortFrames();
    requestAll();
  });
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    redrawAll();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
}

/**
 * Frames may be higher than a phone: a finger that moves up or down scrolls and does not paint.
 * @param {PointerEvent} event
 */
function mayScroll(event) { return Boolean(frames) && event.pointerType === "touch"; }

function listenToBrush() {
  const canvas = canvasOf("reward-map");
  /** @type {number | null} */
  let last = null;
  let [startX, startY] = [0, 0];
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    cursor = null;
    [startX, startY] = [event.clientX, event.clientY];
    last = cellAt(canvas, event);
    if (!mayScroll(event)) paintAround(last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const cell = cellAt(canvas, event);
    const upright = Math.abs(event.clientY - startY) >= Math.abs(event.clientX - startX);
    if (mayScroll(event) && (upright || cell === last)) return;
    paintAlong(last, cell);
    last = cell;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (last !== null && mayScroll(event)) paintAround(last);
    last = null;
  });
  canvas.addEventListener("pointercancel", () => { last = null; });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      event.preventDefault();
      cursor ??= view.state;
      paintAround(cursor);
      return;
    }
    const cell = followKey(canvas, cursor ?? view.state, event);
    if (cell !== null) { cursor = cell; drawRewardMap(); }
  });
  $("goal").addEventListener("click", () => { paintGoal(); updateReward(); });
  $("clear").addEventListener("click", () => { reward.fill(0); updateReward(); });
}

function listenToSteps() {
  const slider = inputOf("step"), play = $("play"), last = allSteps.length - 1;
  slider.addEventListener("input", () => setStep(allSteps[Number(slider.value)]));
  let playing = 0;
  play.addEventListener("click", () => {
    const stop = playing !== 0;
    clearInterval(playing);
    playing = 0;
    play.textContent = stop ? "play" : "stop";
    play.setAttribute("aria-pressed", String(!stop));
    if (stop) return;
    let index = Number(slider.value);
    if (index === last) index = -1;
    playing = setInterval(() => {
      index += 1;
      setStep(allSteps[index]);
      if (index === last) play.click();
    }, 350);
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, select");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "[") setD(view.d - 1);
    if (event.key === "]") setD(view.d + 1);
    const change = event.key === "," ? -1 : event.key === "." ? 1 : 0;
    if (change && last > 0) setStep(allSteps[Math.min(last, Math.max(0, Number(slider.value) + change))]);
  });
}

function setControls() {
  sliders().forEach((slider) => { slider.max = String(K); slider.value = String(view.d); });
  choiceOf("order").value = view.order;
  choiceOf("scale").value = view.root ? "root" : "linear";
  choiceOf("features").value = String(view.features);
  inputOf("arrows").checked = view.arrows;
}

/* ---- Starting ---- */

function describePage() {
  const { title, axes: [x, y], low, high } = description;
  const walls = states.length < N, noMoves = !description.moves, sampled = source.kind === "none";
  $("title").textContent = title;
  const grid = frames ? describeFrames(frames)
    : `${columns} × ${rows} cells` + (walls ? `, ${formatCount(states.length)} of them states` : "");
  $("lead").textContent = `${sampled ? "Discounted sums of cumulants at" : "Ψ between"} ${grid}` +
    (description.discount === null ? "" : `, discount ${description.discount}`) +
    (description.horizon === null ? "" : `, ${formatCount(description.horizon)} steps`) +
    (frames ? ". Every map shows the frames of the states, each within the colour of its value."
      : `. On every map ${x} goes from ${formatNumber(low[0])} to ${formatNumber(high[0])} to the right, ` +
        (low[1] < high[1] ? `${y} from ${formatNumber(low[1])} to ${formatNumber(high[1])} upwards.`
          : `${y} from ${formatNumber(high[1])} to ${formatNumber(low[1])} downwards.`)) +
    (walls ? " Cells inside walls are grey." : "");
  document.body.classList.toggle("frames", Boolean(frames));
  $("rows").hidden = $("reward").hidden = sampled;
  $("order-label").hidden = $("order-lead").hidden = $("chosen").hidden = !frames;
  document.querySelectorAll("[data-unit]").forEach((element) => { element.textContent = unit; });
  if (!description.puddleWorld) $("goal").textContent = `chosen ${unit} only`;
  for (let k = 1; k <= Math.min(K, 10); k++) choiceOf("order").append(new Option(`by component ${k}`, String(k)));
  $("source-title").textContent = `Ψ(s, ·), ${source.label}`;
  $("source-note").textContent = describeSource();
  $("reward-note").textContent = noMoves
    ? "The value is that of the policy behind Ψ. Greedy actions need the moves of the environment, which this " +
      "page has for PuddleWorld alone (where no wall divides a cell)."
    : "The value is that of the policy behind Ψ, the sum of its row times the reward. An arrow is one step of " +
      "improvement on that policy; cells where all actions are as good have none.";
  $("arrows-label").hidden = $("arrows-lead").hidden = noMoves;
  $("components-lead").textContent = runs.length
    ? "Left singular vectors of the centred matrix, and what each run's first seed has learned, rotated within its " +
      "span onto them (orthogonal Procrustes). Colours go from minus to plus the true component's largest " +
      "magnitude; |cos| is the cosine with the true component."
    : "Left singular vectors of the centred matrix. Name training runs on the command line to see theirs below.";
  if (runs.some((run) => !run.fitted) && allSteps.length <= 1)
    $("components-lead").textContent += " Each run has kept one step; runs of rlreps train record their features " +
      "as they go, in the folder features, and then there is a slider here.";
  if (frames)
    $("components-lead").textContent += " Of each component, the frames with the greatest values come first and " +
      "those with the least values last.";
  $("step-label").hidden = $("play").hidden = allSteps.length <= 1;
  inputOf("step").max = String(Math.max(0, allSteps.length - 1));
  for (const [name, value] of Object.entries({ [frames ? "states" : "grid"]: grid, ...description.about })) {
    const term = document.createElement("dt"), detail = document.createElement("dd");
    term.textContent = name;
    detail.textContent = value;
    $("facts").append(term, detail);
  }
  choiceOf("features").append(new Option("true components", "-1"));
  runs.forEach((run, i) => choiceOf("features").append(new Option(run.label, String(i))));
  $("width-label").hidden = Boolean(frames);
  const across = frames ? 1 : columns;
  const widths = [...new Set([1, 3, 7, 15].map((width) => Math.max(1, Math.round(width * across / 100))))];
  for (const width of widths)
    choiceOf("width").append(new Option(width === 1 ? "1 cell" : `${width} cells`, String(width)));
  choiceOf("width").value = String(widths[Math.min(2, widths.length - 1)]);
}

/** @param {import("./data.js").Frames} sizes */
function describeFrames({ total, different }) {
  return `${formatCount(total)} states` +
    (total > N ? `, of which ${formatCount(N)} are shown, evenly spaced by number; rows, errors and values are of these` : "") +
    (different < N ? ` (${formatCount(different)} different frames)` : "");
}

function describeSource() {
  const { kind, samplingError, reference, steps } = source, difference = formatNumber(source.difference);
  const noise = samplingError === null ? ""
    : ` The store's own entries have a standard error of ${formatNumber(samplingError)}.`;
  if (kind === "rows")
    return `The rows are those of the store, rounded to 16 bits (root mean square ${difference}).${noise}`;
  if (kind === "chain")
    return `The rows are not stored but computed in this page: ${steps} steps of the one-step chain, whose ` +
      `probabilities are counts of ${formatCount(description.moves?.points ?? 0)} moves from each cell by each ` +
      `action, and the rest of the sum at rank ${K}. They differ from 100 rows of ${reference} by ${difference} ` +
      `(root mean square over entries).${noise}`;
  return `This page holds Ψ at rank ${K} and no rows, since the matrix is too large for its rows and the moves of its ` +
    `environment are not known. Rank ${K} differs from the store by ${difference} (root mean square over entries); ` +
    `errors are against the store.${noise}`;
}

async function start() {
  if (!("DecompressionStream" in window))
    throw new Error("this browser is older than 2023 and cannot unpack the page's numbers");
  await loadArrays(false);
  describePage();
  decodeView(location.hash);
  setControls();
  layOutComponents();
  drawRows();
  drawSpectrum();
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  listen();
  await loadArrays(true);
  completeSums();
  sortFrames();
  cache.rowOf = -1;
  drawRows();
  drawComponents();
  drawCoverage();
  drawReward();
}

// For tests, and for the console.
Object.assign(window, {
  explore: {
    view, cache, reward, encodeView, writeCsv, drawPng,
    row: computeRow, rank: computeRankRow, value: computeValue,
    ready: start().catch((error) => {
      $("trouble").hidden = false;
      $("trouble").textContent = `The page cannot be shown: ${error.message}.`;
      throw error;
    }),
  },
});
