"use strict";
(() => {
const described = JSON.parse(document.getElementById("described").textContent);
const { columns, rows, discount, horizon, countStart, source, runs } = described;
const K = described.components, N = columns * rows;
const $ = (id) => document.getElementById(id);
const arrays = {};
const timings = { firstPaint: null, complete: null, slider: [] };

/* ---- Numbers from the page's blocks ---- */

async function inflated(name) {
  const text = atob($(`array-${name}`).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const TYPES = { uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  float32: Float32Array };

function joined(bytes, type) {
  // The lowest bytes of all entries come before the next ones.
  const Type = TYPES[type], size = Type.BYTES_PER_ELEMENT, count = bytes.length / size;
  if (size === 1) return new Type(bytes.buffer);
  const whole = new Uint8Array(bytes.length);
  for (let plane = 0; plane < size; plane++)
    for (let i = 0; i < count; i++) whole[i * size + plane] = bytes[plane * count + i];
  return new Type(whole.buffer);
}

async function load(name) {
  const { type, scales } = described.arrays[name];
  const values = joined(await inflated(name), type);
  if (!scales) return (arrays[name] = values);
  for (let map = 0; map < scales.length; map++) {  // Integer arrays wrap around as they were made.
    const at = map * N;
    for (let i = at + columns; i < at + N; i++) values[i] += values[i - columns];
    for (let row = at; row < at + N; row += columns)
      for (let i = row + 1; i < row + columns; i++) values[i] += values[i - 1];
  }
  if (name === "rows") return (arrays[name] = { whole: values, scales });
  const maps = new Float32Array(values.length);
  for (let map = 0; map < scales.length; map++)
    for (let i = map * N; i < (map + 1) * N; i++) maps[i] = values[i] * scales[map];
  $(`array-${name}`).textContent = "";
  return (arrays[name] = maps);
}

/* ---- Mathematics; every array is over cells, 0 where no state is ---- */

let states, moves = null, solved = false;

function readMoves() {
  const { points, names } = described.moves;
  moves = names.map((_, action) => {
    const windows = arrays[`windows${action}`], counts = arrays[`counts${action}`];
    const starts = new Int32Array(N + 1);
    let size = 0;
    for (const count of counts) size += count > 0;
    const ends = new Int32Array(size), chances = new Float32Array(size);
    for (let cell = 0, at = 0, filled = 0; cell < N; cell++) {
      const row = Math.floor(cell / columns) + windows[cell], column = cell % columns + windows[N + cell];
      const height = windows[2 * N + cell], width = windows[3 * N + cell];
      for (let i = 0; i < height; i++)
        for (let j = 0; j < width; j++, at++)
          if (counts[at]) {
            ends[filled] = (row + i) * columns + column + j;
            chances[filled++] = counts[at] / points;
          }
      starts[cell + 1] = filled;
    }
    return { starts, ends, chances };
  });
}

function spread(from) {  // from · P, under the uniformly random policy
  const to = new Float64Array(N);
  for (const { starts, ends, chances } of moves)
    for (let cell = 0; cell < N; cell++) {
      const mass = from[cell] / moves.length;
      if (mass < 1e-13) continue;
      for (let i = starts[cell]; i < starts[cell + 1]; i++) to[ends[i]] += mass * chances[i];
    }
  return to;
}

function expected(values, action) {  // P_a · values
  const to = new Float64Array(N), { starts, ends, chances } = moves[action];
  for (let cell = 0; cell < N; cell++) {
    let sum = 0;
    for (let i = starts[cell]; i < starts[cell + 1]; i++) sum += chances[i] * values[ends[i]];
    to[cell] = sum;
  }
  return to;
}

function meanExpected(values) {
  const to = new Float64Array(N);
  for (let action = 0; action < moves.length; action++) {
    const part = expected(values, action);
    for (let i = 0; i < N; i++) to[i] += part[i] / moves.length;
  }
  return to;
}

function rankRow(state, d) {
  const { left, right, task_means: tasks, state_means: means } = arrays;
  const row = new Float64Array(N);
  for (const cell of states) row[cell] = tasks[cell] + means[state];
  for (let i = 0; i < d; i++) {
    const weight = left[i * N + state], at = i * N;
    for (let cell = 0; cell < N; cell++) row[cell] += weight * right[at + cell];
  }
  return row;
}

function solvedRow(state) {
  let reached = new Float64Array(N), weight = 1;
  const row = new Float64Array(N);
  reached[state] = 1;
  for (let term = 0; term < Math.min(source.steps, horizon); term++) {
    const next = spread(reached), counted = countStart ? reached : next;
    for (let i = 0; i < N; i++) row[i] += weight * counted[i];
    weight *= discount;
    reached = next;
  }
  if (horizon <= source.steps) return row;
  // The terms that are left, of which the sum at rank K has a few too many.
  weight *= (1 - discount ** (horizon - source.steps)) / (1 - discount ** horizon);
  const { left, right, task_means: tasks, state_means: means } = arrays;
  let mass = 0, mean = 0;
  for (const cell of states) { mass += reached[cell]; mean += reached[cell] * means[cell]; }
  for (const cell of states) row[cell] += weight * (mass * tasks[cell] + mean);
  for (let i = 0; i < K; i++) {
    const at = i * N;
    let coefficient = 0;
    for (let cell = 0; cell < N; cell++) coefficient += reached[cell] * left[at + cell];
    coefficient *= weight;
    for (let cell = 0; cell < N; cell++) row[cell] += coefficient * right[at + cell];
  }
  return row;
}

function storedRow(state) {
  const { whole, scales } = arrays.rows, number = states.indexOf(state);
  return Float64Array.from(whole.subarray(number * N, (number + 1) * N), (v) => v * scales[number]);
}

function wholeRow(state) {
  if (source.kind === "rank" || !solved) return rankRow(state, K);
  return source.kind === "rows" ? storedRow(state) : solvedRow(state);
}

function rankValue(reward) {  // Ψ at rank K times the reward
  const { left, right, task_means: tasks, state_means: means } = arrays;
  const values = new Float64Array(N);
  let constant = 0, total = 0;
  for (const cell of states) { constant += tasks[cell] * reward[cell]; total += reward[cell]; }
  for (const cell of states) values[cell] = constant + means[cell] * total;
  for (let i = 0; i < K; i++) {
    const at = i * N;
    let coefficient = 0;
    for (let cell = 0; cell < N; cell++) coefficient += right[at + cell] * reward[cell];
    for (let cell = 0; cell < N; cell++) values[cell] += coefficient * left[at + cell];
  }
  return values;
}

function wholeValue(reward) {
  if (source.kind === "rank" || !solved) return rankValue(reward);
  let values = new Float64Array(N);
  if (source.kind === "rows") {
    const { whole, scales } = arrays.rows;
    const painted = [];
    for (let i = 0; i < N; i++) if (reward[i]) painted.push(i);
    states.forEach((state, number) => {
      let sum = 0;
      for (const i of painted) sum += whole[number * N + i] * reward[i];
      values[state] = sum * scales[number];
    });
    return values;
  }
  if (horizon > source.steps) {
    const share = (1 - discount ** (horizon - source.steps)) / (1 - discount ** horizon);
    values = rankValue(reward).map((value) => share * value);
  }
  for (let term = 0; term < Math.min(source.steps, horizon); term++) {
    if (countStart) {
      values = meanExpected(values);
      for (let i = 0; i < N; i++) values[i] = reward[i] + discount * values[i];
    } else {
      for (let i = 0; i < N; i++) values[i] = reward[i] + discount * values[i];
      values = meanExpected(values);
    }
  }
  return values;
}

function orthonormal(maps, count) {  // of a constant and the maps, in order: Gram and Schmidt, twice
  const basis = [];
  for (let k = -1; k < count; k++) {
    const map = new Float64Array(N);
    for (const cell of states) map[cell] = k < 0 ? 1 : maps[k * N + cell];
    const before = norm(map);
    for (let again = 0; again < 2; again++)
      for (const other of basis) {
        const overlap = dot(other, map);
        for (let i = 0; i < N; i++) map[i] -= overlap * other[i];
      }
    const after = norm(map);
    const scale = after > 1e-6 * before ? 1 / after : 0;
    for (let i = 0; i < N; i++) map[i] *= scale;
    basis.push(map);
  }
  return basis;
}

function dot(one, other) { let sum = 0; for (let i = 0; i < N; i++) sum += one[i] * other[i]; return sum; }
function norm(map) { return Math.sqrt(dot(map, map)); }

function linearValue(weights, basis, d) {  // on a constant and d features
  const fitted = new Float64Array(N);
  for (let k = 0; k <= d; k++) {
    const weight = weights[k], feature = basis[k];
    for (let i = 0; i < N; i++) fitted[i] += weight * feature[i];
  }
  return fitted;
}

function greedy(reward, values) {  // the best action of each cell, -1 where all are as good
  const ahead = countStart ? values : values.map((v, i) => reward[i] + discount * v);
  const best = new Int8Array(N).fill(-1);
  for (const cell of states) {
    let high = -Infinity, low = Infinity, size = 0, chosen = -1;
    for (let action = 0; action < moves.length; action++) {
      const { starts, ends, chances } = moves[action];
      let value = 0;
      for (let i = starts[cell]; i < starts[cell + 1]; i++) value += chances[i] * ahead[ends[i]];
      if (value > high) { high = value; chosen = action; }
      if (value < low) low = value;
      size = Math.max(size, Math.abs(value));
    }
    if (high - low > 1e-6 * size) best[cell] = chosen;
  }
  return best;
}

/* ---- What is shown ---- */

const shown = { state: 0, d: Math.min(10, K), root: true, first: 0, step: Infinity, features: -1,
  arrows: true, pinned: false };
const reward = new Float64Array(N);
const allSteps = [...new Set(runs.flatMap((run) => run.steps))].sort((a, b) => a - b);
const cache = { row: null, rowOf: -1, value: null, bases: new Map() };
let perPage = 5, cursor = null;

const xOf = (cell) => described.low[0] + (cell % columns + 0.5) / columns * (described.high[0] - described.low[0]);
const yOf = (cell) => described.low[1] + (Math.floor(cell / columns) + 0.5) / rows * (described.high[1] - described.low[1]);
const place = (cell) => `${described.axes[0]} = ${short(xOf(cell))}, ${described.axes[1]} = ${short(yOf(cell))}`;
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)}\u00a0%`;

function short(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(digits - 1) : String(+value.toPrecision(digits));
  return text.replace("-", "\u2212");
}

function encoded() {
  const parts = [`s=${shown.state}`, `d=${shown.d}`];
  if (!shown.root) parts.push("m=linear");
  if (shown.first) parts.push(`c=${shown.first + 1}`);
  if (Number.isFinite(shown.step)) parts.push(`t=${shown.step}`);
  if (shown.features >= 0) parts.push(`f=${shown.features + 1}`);
  if (!shown.arrows) parts.push("a=0");
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

function decode(text) {
  const found = new URLSearchParams(text.replace(/^#/, ""));
  const number = (name, low, high, other) => {
    const value = found.has(name) ? Number(found.get(name)) : NaN;
    return Number.isInteger(value) && value >= low && value <= high ? value : other;
  };
  const middle = nearestState(Math.floor(rows / 2) * columns + Math.floor(columns / 2));
  shown.state = nearestState(number("s", 0, N - 1, middle));
  shown.pinned = found.has("s");
  shown.d = number("d", 1, K, Math.min(10, K));
  shown.root = found.get("m") !== "linear";
  shown.first = number("c", 1, K, 1) - 1;
  shown.step = number("t", 0, 1e15, Infinity);
  shown.features = number("f", 1, runs.length, 0) - 1;
  shown.arrows = found.get("a") !== "0";
  if (!found.has("r")) return void paintGoal();
  reward.fill(0);
  for (const part of found.get("r").split("_").filter(Boolean)) {
    const [start, length, sign] = part.split(".");
    const from = parseInt(start, 36), to = Math.min(N, from + parseInt(length, 36));
    for (let i = from; i < to; i++) if (arrays.states[i]) reward[i] = sign === "2" ? -1 : 1;
  }
}

let addressTimer = null;
function keepAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => history.replaceState(null, "", `#${encoded()}`), 150);
}

function nearestState(cell) {
  if (arrays.states[cell]) return cell;
  let best = states[0], least = Infinity;
  for (const other of states) {
    const distance = (other % columns - cell % columns) ** 2 +
      (Math.floor(other / columns) - Math.floor(cell / columns)) ** 2;
    if (distance < least) { least = distance; best = other; }
  }
  return best;
}

function paintGoal() {
  reward.fill(0);
  for (const cell of states) {
    const x = (cell % columns + 0.5) / columns, y = (Math.floor(cell / columns) + 0.5) / rows;
    if ((x - 0.85) ** 2 + (y - 0.85) ** 2 < 0.01) reward[cell] = 1;
  }
}

/* ---- Drawing ---- */

function table(base64) {
  const text = atob(base64), colours = new Uint32Array(256);
  const bytes = new Uint8Array(colours.buffer);
  for (let i = 0; i < 256; i++) {
    for (let part = 0; part < 3; part++) bytes[4 * i + part] = text.charCodeAt(3 * i + part);
    bytes[4 * i + 3] = 255;
  }
  return colours;
}
const SEQUENTIAL = table(described.colours.sequential), SIGNED = table(described.colours.signed);
const missing = (() => {
  const word = new Uint32Array(1), bytes = new Uint8Array(word.buffer);
  for (let part = 0; part < 3; part++)
    bytes[part] = parseInt(described.colours.missing.slice(1 + 2 * part, 3 + 2 * part), 16);
  bytes[3] = 255;
  return word[0];
})();
const picture = document.createElement("canvas");
picture.width = columns; picture.height = rows;
const pen = picture.getContext("2d");
const image = pen.createImageData(columns, rows);
const pixels = new Uint32Array(image.data.buffer);

function sized(canvas, height = null) {
  // Widths are read when the window changes and not in between: reading makes the browser lay out.
  if (!canvas.wide) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    canvas.wide = Math.max(1, canvas.clientWidth);
    canvas.high = height || canvas.wide;
    canvas.style.height = `${canvas.high}px`;
    canvas.width = Math.round(canvas.wide * ratio);
    canvas.height = Math.round(canvas.high * ratio);
    canvas.getContext("2d").setTransform(canvas.width / canvas.wide, 0, 0, canvas.height / canvas.high, 0, 0);
  }
  return canvas.getContext("2d");
}

function drawMap(canvas, values, low, high, { signed = false, root = false, overlay = null, beyond = null } = {}) {
  const colours = signed ? SIGNED : SEQUENTIAL, scale = high > low ? 1 / (high - low) : 0;
  const inside = arrays.states;
  let below = false, above = false;
  for (let row = 0, cell = 0; row < rows; row++) {
    let pixel = (rows - 1 - row) * columns;
    for (let column = 0; column < columns; column++, cell++, pixel++) {
      if (!inside[cell]) { pixels[pixel] = missing; continue; }
      let share = (values[cell] - low) * scale;
      below ||= share < -1e-3;
      above ||= share > 1.001;
      share = share > 0 ? (share < 1 ? share : 1) : 0;
      if (root) share = signed ? rooted(share) : Math.sqrt(share);
      pixels[pixel] = colours[(share * 255 + 0.5) | 0];
    }
  }
  pen.putImageData(image, 0, 0);
  const context = sized(canvas), { wide, high: tall } = canvas;
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, wide, tall);
  drawOutlines(context, wide, tall);
  if (overlay) overlay(context, wide, tall);
  if (canvas.id) drawBar(canvas.id, (below ? "≤ " : "") + short(low),
    (above && beyond === null ? "≥ " : "") + short(high) + (beyond !== null && (beyond > high || beyond < low) ? `; own cell ${short(beyond)}` : ""),
    colours, root);
}

function rooted(share) {  // the root of the distance from the middle
  const away = 2 * share - 1;
  return (1 + Math.sign(away) * Math.sqrt(Math.abs(away))) / 2;
}

function drawOutlines(context, wide, tall) {
  const [left, low] = described.low, [right, high] = described.high;
  const thin = wide < 150 ? 0.6 : 1;
  for (const [width, colour] of [[2.6 * thin, "rgba(255, 255, 255, 0.45)"], [thin, "rgba(27, 27, 27, 0.85)"]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    for (const line of described.outlines) {
      context.beginPath();
      for (const [x, y] of line)
        context.lineTo((x - left) / (right - left) * wide, (high - y) / (high - low) * tall);
      context.closePath();
      context.stroke();
    }
  }
}

function drawBar(id, low, high, colours, root) {
  const bar = document.querySelector(`[data-bar="${id}"]`);
  if (!bar) return;
  if (!bar.firstChild) {
    const canvas = document.createElement("canvas");
    canvas.width = 256; canvas.height = 1;
    canvas.setAttribute("aria-hidden", "true");
    bar.append(document.createElement("span"), canvas, document.createElement("span"));
  }
  const canvas = bar.children[1], key = `${root}${colours === SIGNED}`;
  if (canvas.key !== key) {
    canvas.key = key;
    const context = canvas.getContext("2d"), strip = context.createImageData(256, 1);
    new Uint32Array(strip.data.buffer).set(colours.map((_, i) => {
      const share = i / 255, turned = !root ? share : colours === SIGNED ? rooted(share) : Math.sqrt(share);
      return colours[Math.round(turned * 255)];
    }));
    context.putImageData(strip, 0, 0);
  }
  bar.children[0].textContent = low;
  bar.children[2].textContent = high;
}

function crosshair(cell) {
  return (context, wide, tall) => {
    const x = (cell % columns + 0.5) / columns * wide, y = (1 - (Math.floor(cell / columns) + 0.5) / rows) * tall;
    for (const [width, colour] of [[3.5, "#ffffff"], [1.5, "#1b1b1b"]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      context.arc(x, y, 6, 0, 2 * Math.PI);
      context.stroke();
    }
  };
}

function arrowsOf(best) {
  return (context, wide, tall) => {
    const every = Math.max(1, Math.ceil(20 * Math.max(columns / wide, rows / tall)));
    const first = (count) => Math.floor((count - (Math.floor(count / every) - 1) * every - 1) / 2);
    const size = Math.min(0.36 * every, Math.ceil(every / 2) - 0.5) * Math.min(wide / columns, tall / rows);
    context.lineCap = "round";
    for (const [width, colour] of [[3.4, "rgba(27, 27, 27, 0.7)"], [1.5, "#ffffff"]]) {
      context.strokeStyle = colour;
      context.lineWidth = width;
      context.beginPath();
      for (let row = first(rows); row + every / 2 <= rows; row += every)
        for (let column = first(columns); column + every / 2 <= columns; column += every) {
          const action = best[row * columns + column];
          if (action < 0) continue;
          const [dx, dy] = described.moves.arrows[action];
          const x = (column + 0.5) / columns * wide, y = (1 - (row + 0.5) / rows) * tall;
          const endX = x + size * dx, endY = y - size * dy;
          context.moveTo(x - size * dx, y + size * dy);
          context.lineTo(endX, endY);
          for (const turn of [0.75, -0.75]) {
            const along = -0.8 * size, c = Math.cos(turn), s = Math.sin(turn);
            context.moveTo(endX, endY);
            context.lineTo(endX + along * (dx * c - dy * s), endY - along * (dx * s + dy * c));
          }
        }
      context.stroke();
    }
  };
}

function extent(...maps) {
  let low = Infinity, high = -Infinity;
  for (const map of maps)
    for (const cell of states) { low = Math.min(low, map[cell]); high = Math.max(high, map[cell]); }
  return [low, high];
}

function extentBut(cell, map) {
  const kept = map[cell];
  map[cell] = map[cell === states[0] ? states[states.length - 1] : states[0]];
  const found = extent(map);
  map[cell] = kept;
  return found;
}

function difference(one, other) {
  const found = new Float64Array(N);
  for (const cell of states) found[cell] = one[cell] - other[cell];
  return found;
}

function drawRows() {
  const { state, d } = shown;
  if (cache.rowOf !== state) { cache.row = wholeRow(state); cache.rowOf = state; }
  const row = cache.row, rank = rankRow(state, d), lost = difference(row, rank);
  cache.rank = rank;
  // The state's own cell counts the start and would leave all others in the dark.
  const high = Math.max(...extentBut(state, row)), limit = Math.max(...extentBut(state, lost).map(Math.abs)) || 1;
  const overlay = crosshair(state), options = { root: shown.root, overlay };
  drawMap($("row-whole"), row, 0, high, { ...options, beyond: row[state] });
  drawMap($("row-rank"), rank, 0, high, { ...options, beyond: rank[state] });
  drawMap($("row-lost"), lost, -limit, limit, { ...options, signed: true, beyond: lost[state] });
  const lostEnergy = source.kind === "rank" ? rankEnergy(state, d) : dot(lost, lost);
  let energy = 0;
  const { task_means: tasks, state_means: means } = arrays;
  if (source.kind === "rank") energy = arrays.row_energies[state];
  else for (const cell of states) energy += (row[cell] - tasks[cell] - means[state]) ** 2;
  cache.error = Math.sqrt(lostEnergy / energy);
  document.querySelectorAll("[data-d]").forEach((element) => { element.textContent = d; });
  $("rows-said").textContent = `State ${place(state)}. Rank ${d} leaves ${percent(cache.error)} of its centred row` +
    ` (root mean square ${short(Math.sqrt(lostEnergy / states.length))} a cell); all states together: ` +
    `${percent(Math.sqrt(Math.max(0, 1 - captured(d))))}.`;
  label("row-whole", `${$("source-title").textContent} at ${place(state)}: from ${short(extent(row)[0])} to ${short(extent(row)[1])}`);
  label("row-rank", `The same row at rank ${d}: from ${short(extent(rank)[0])} to ${short(extent(rank)[1])}`);
  label("row-lost", `What rank ${d} loses of the row: at most ${short(Math.max(limit, Math.abs(lost[state])))} in a cell`);
}

function rankEnergy(state, d) {
  let energy = arrays.row_energies[state];
  for (let i = 0; i < d; i++) energy -= (arrays.left[i * N + state] * described.singularValues[i]) ** 2;
  return Math.max(energy, 0);
}

function captured(d) {
  let sum = 0;
  for (let i = 0; i < d; i++) sum += described.singularValues[i] ** 2;
  return sum / described.totalEnergy;
}

function label(id, text) { $(id).setAttribute("aria-label", text); }

function stepOf(run) {  // the latest step that the run has kept up to the one shown
  let found = 0;
  run.steps.forEach((step, index) => { if (step <= shown.step) found = index; });
  return found;
}

function nearest(run) {  // what the page holds of a run with more features than it has components
  return `the ${run.cosines[0].length} directions nearest to the true components in the span of ${run.features} features`;
}

function layOutComponents() {
  const width = $("component-maps").clientWidth || 1000;
  perPage = Math.min(K, width < 480 ? 3 : width < 800 ? 5 : 10);
  const sets = $("component-maps");
  sets.textContent = "";
  for (const number of [-1, ...runs.keys()]) {
    const set = document.createElement("div");
    set.className = "set";
    set.style.setProperty("--count", perPage);
    const name = document.createElement("div");
    name.append(document.createElement("span"), document.createElement("small"));
    name.firstChild.textContent = number < 0 ? "true" : runs[number].label;
    set.append(name);
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
  const { first } = shown, last = Math.min(first + perPage, K);
  $("shown").textContent = `${first + 1} to ${last}`;
  $("earlier").disabled = first === 0;
  $("later").disabled = last >= K;
  [...$("component-maps").children].forEach((set, place) => {
    const run = runs[place - 1], index = run ? stepOf(run) : 0;
    const maps = run ? arrays[run.arrays[index]] : arrays.left;
    const d = run ? run.cosines[index].length : K;
    set.firstChild.lastChild.textContent = run
      ? `${run.steps[index] > shown.step ? "first kept: " : ""}update ${run.steps[index].toLocaleString("en")}${d < run.features ? `, ${nearest(run)}` : ""}`
      : "left singular vectors";
    [...set.querySelectorAll("figure")].forEach((figure, i) => {
      const k = first + i, [canvas, caption] = figure.children;
      figure.style.visibility = k < d && k < K && maps ? "visible" : "hidden";
      if (!(k < d && k < K && maps)) return;
      let limit = 0;
      for (let cell = k * N; cell < (k + 1) * N; cell++) limit = Math.max(limit, Math.abs(arrays.left[cell]));
      drawMap(canvas, maps.subarray(k * N, (k + 1) * N), -limit, limit, { signed: true });
      const cosine = run ? `|cos| ${run.cosines[index][k].toFixed(3)}` : `${k + 1}: ±${short(limit, 2)}`;
      caption.textContent = cosine;
      canvas.setAttribute("aria-label", `Component ${k + 1}, ${run ? `${run.label} at update ${run.steps[index]}` : "true"}: ${cosine}`);
    });
  });
  if (allSteps.length > 1) {
    const step = Math.min(shown.step, allSteps[allSteps.length - 1]);
    $("step").value = allSteps.filter((each) => each <= step).length - 1;
    $("step-out").textContent = step.toLocaleString("en");
  }
  drawCurves();
}

function drawCoverage() {
  const fits = runs.filter((run) => run.visits), maps = $("visits");
  $("coverage").hidden = !fits.length;
  fits.forEach((run, index) => {
    if (!maps.children[index]) {
      const figure = document.createElement("figure");
      figure.innerHTML = `<figcaption></figcaption><canvas id="${run.visits}" class="map" role="img"></canvas><div class="bar" data-bar="${run.visits}"></div>`;
      maps.append(figure);
    }
    const visits = arrays[run.visits], never = states.filter((cell) => !visits[cell]).length;
    const said = `${run.label}: ${never ? `no visit to ${never.toLocaleString("en")} of ${states.length.toLocaleString("en")} states` : "every state is visited"}`;
    maps.children[index].firstChild.textContent = said;
    drawMap($(run.visits), visits, 0, extent(visits)[1], { root: true });
    label(run.visits, said);
  });
}

/* ---- Charts ---- */

const DASHES = [[], [7, 3], [2, 3], [7, 3, 2, 3], [11, 3, 3, 3]];

function colour(index) {
  const found = described.colours.series[index % described.colours.series.length];
  return found === "#000000" ? ink() : found;
}
function ink() { return getComputedStyle(document.body).color; }
function muted() { return getComputedStyle(document.documentElement).getPropertyValue("--muted").trim() || "#666"; }

function chart(canvas, { lines, x, y, logY = false, yRange, xRange, marks = [], levels = [] }) {
  const context = sized(canvas, 256), { wide, high } = canvas;
  const box = { left: 58, right: wide - 24, top: 10, bottom: high - 40 };
  const up = logY ? Math.log10 : (v) => v;
  const [low, top] = yRange.map(up);
  const atX = (v) => box.left + (v - xRange[0]) / (xRange[1] - xRange[0] || 1) * (box.right - box.left);
  const atY = (v) => box.bottom - (up(v) - low) / (top - low || 1) * (box.bottom - box.top);
  context.clearRect(0, 0, wide, high);
  context.font = "13px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = ink();
  context.lineWidth = 1;
  context.setLineDash([]);
  context.strokeRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  context.textAlign = "right"; context.textBaseline = "middle";
  for (const tick of ticks(yRange, logY)) {
    context.fillText(short(tick), box.left - 7, atY(tick));
    line(context, [[box.left - 4, atY(tick)], [box.left, atY(tick)]]);
  }
  context.textAlign = "center"; context.textBaseline = "top";
  for (const tick of ticks(xRange, false)) {
    context.fillText(tick.toLocaleString("en"), atX(tick), box.bottom + 6);
    line(context, [[atX(tick), box.bottom], [atX(tick), box.bottom + 4]]);
  }
  context.fillText(x, (box.left + box.right) / 2, box.bottom + 22);
  context.save();
  context.translate(10, (box.top + box.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "middle";
  context.fillText(y, 0, 0);
  context.restore();
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  context.clip();
  context.strokeStyle = muted();
  for (const mark of marks) line(context, [[atX(mark), box.top], [atX(mark), box.bottom]]);
  context.setLineDash([5, 4]);
  for (const level of levels) line(context, [[box.left, atY(level)], [box.right, atY(level)]]);
  context.lineWidth = 2;
  lines.forEach((each, index) => {
    context.strokeStyle = colour(index);
    context.setLineDash(DASHES[index % DASHES.length]);
    line(context, each.filter(([, v]) => v !== null && (!logY || v > 0)).map(([a, b]) => [atX(a), atY(b)]));
  });
  context.restore();
}

function line(context, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

function ticks([low, high], log) {
  const found = [];
  if (log) {
    const decades = Math.log10(high / low);
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const lead of decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 2, 3, 5, 7]) found.push(lead * 10 ** power);
  } else {
    const raw = (high - low) / 5 || 1, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((lead) => lead * size).find((each) => each >= raw);
    for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9 * step; tick += step) found.push(+tick.toPrecision(12));
  }
  return found.filter((tick) => tick >= low * (1 - 1e-9) - (log ? 0 : 1e-12) && tick <= high * (1 + 1e-9));
}

function drawCurves() {
  const curved = runs.filter((run) => run.curve);
  $("curves-figure").hidden = curved.length === 0;
  if (!curved.length) return;
  const lines = curved.map((run) => run.curve[0].map((step, i) => [step, run.curve[1][i]]));
  const known = (described.noiseFloor || []).map((v, i) => [i + 1, v]).filter(([d, v]) => v > 0 && curved.some((run) => run.features === d));
  const floors = known.map(([, v]) => v), floorsSaid = `noise floor: ${known.map(([d, v]) => `${short(v)} (d = ${d})`).join(", ")}`;
  const all = [...lines.flat().map(([, v]) => v), ...floors].filter((v) => v > 0);
  const step = Math.min(shown.step, allSteps[allSteps.length - 1]);
  chart($("curves"), { lines, x: "update", y: "subspace distance", logY: true, levels: floors, marks: [step],
    xRange: [0, Math.max(1, ...lines.flat().map(([s]) => s))], yRange: [Math.min(...all) * 0.8, Math.max(...all) * 1.1] });
  label("curves", `Subspace distance against updates. At update ${step}: ` + curved.map((run) => `${run.label} ${short(distanceAt(run, step))}`).join(", ") +
    (floors.length ? `; ${floorsSaid}` : ""));
  const legend = $("legend");
  legend.textContent = "";
  curved.forEach((run, index) => {
    const item = document.createElement("li");
    item.innerHTML = `<svg width="34" height="8" aria-hidden="true"><line x1="1" y1="4" x2="33" y2="4" stroke="${colour(index)}" stroke-width="2.5" stroke-dasharray="${DASHES[index % DASHES.length].join(" ")}"/></svg>`;
    item.append(`${run.label}: ${short(distanceAt(run, step))}`);
    legend.append(item);
  });
  if (floors.length) {
    const item = document.createElement("li");
    item.textContent = floorsSaid;
    legend.append(item);
  }
}

function distanceAt(run, step) {
  let found = null;
  run.curve[0].forEach((each, i) => { if (each <= step) found = run.curve[1][i]; });
  return found;
}

function drawSpectrum() {
  const values = described.singularValues, d = shown.d;
  const lines = [values.map((v, i) => [i + 1, v])];
  const positive = values.filter((v) => v > 0);
  const xRange = [1, Math.max(2, values.length)];
  chart($("values"), { lines, x: "component", y: "singular value", logY: true, xRange, marks: [d],
    yRange: [Math.min(...positive) * 0.9, values[0] * 1.1] });
  chart($("energy"), { lines: [values.map((_, i) => [i + 1, 100 * captured(i + 1)])], x: "components d",
    y: "energy, %", xRange, yRange: [0, 100], marks: [d] });
  $("spectrum-said").textContent = `d = ${d}: singular value ${short(values[d - 1])}, ${percent(captured(d))} of the energy`;
  label("values", `Singular values, from ${short(values[0])} to ${short(values[values.length - 1])}; number ${d} is ${short(values[d - 1])}`);
  label("energy", `Energy captured: ${percent(captured(d))} by ${d} components, ${percent(captured(values.length))} by ${values.length}`);
}

/* ---- Rewards ---- */

function basisOf(features) {
  const run = runs[features], name = run ? run.arrays[stepOf(run)] : "left";
  if (!arrays[name]) return null;
  if (!cache.bases.has(name)) {
    if (cache.bases.size > 4) cache.bases.clear();
    cache.bases.set(name, orthonormal(arrays[name], run ? run.cosines[0].length : K));
  }
  return { basis: cache.bases.get(name), d: run ? run.cosines[0].length : shown.d };
}

function drawReward() {
  const chosen = basisOf(shown.features);
  if (!chosen) return;
  if (!cache.value) {
    cache.value = wholeValue(reward);
    cache.greedy = moves ? greedy(reward, cache.value) : null;
    cache.weightsOf = null;
  }
  const values = cache.value;
  if (cache.weightsOf !== chosen.basis) {  // Least squares: the basis is orthonormal.
    cache.weights = chosen.basis.map((feature) => dot(feature, values));
    cache.weightsOf = chosen.basis;
    cache.variation = norm(difference(values, linearValue(cache.weights, chosen.basis, 0)));
  }
  const linear = linearValue(cache.weights, chosen.basis, chosen.d), lost = difference(values, linear);
  cache.linear = linear;
  if (!cache.drawnReward) { drawRewardMap(); cache.drawnReward = true; }
  cache.greedyLinear = moves ? greedy(reward, linear) : null;
  const { variation } = cache;
  cache.valueError = variation ? norm(lost) / variation : 0;
  const [low, high] = extent(values), limit = Math.max(...extent(lost).map(Math.abs)) || 1;
  const range = high > low ? [low, high] : [low - 1, low + 1];
  const over = (best) => (shown.arrows && best ? arrowsOf(best) : null);
  drawMap($("value-whole"), values, ...range, { overlay: over(cache.greedy) });
  drawMap($("value-linear"), linear, ...range, { overlay: over(cache.greedyLinear) });
  drawMap($("value-lost"), lost, -limit, limit, { signed: true });
  const run = runs[shown.features];
  document.querySelector("#reward .d").disabled = Boolean(run);  // A run has the d that it has.
  const learned = run && chosen.d < run.features ? nearest(run) : `${chosen.d} features`;
  const name = run ? `${learned} of ${run.label} at update ${run.steps[stepOf(run)]}` : `${chosen.d} true component${chosen.d === 1 ? "" : "s"}`;
  $("linear-title").textContent = `linear in ${name}`;
  let said = variation
    ? `${name[0].toUpperCase()}${name.slice(1)} and a constant leave ${percent(cache.valueError)} of the value's variation.`
    : "No reward: the value is 0 everywhere.";
  if (moves && variation) {
    let same = 0, decided = 0;
    for (const cell of states) if (cache.greedy[cell] >= 0) { decided++; same += cache.greedy[cell] === cache.greedyLinear[cell]; }
    cache.agreement = same / decided;
    said += ` The greedy action is the same in ${percent(cache.agreement)} of the states.`;
  }
  $("reward-said").textContent = said;
  label("value-whole", `Value of the painted reward: from ${short(low)} to ${short(high)}`);
  label("value-linear", `The value, linear in ${name}: ${said}`);
  label("value-lost", `Difference: at most ${short(limit)} in a cell`);
}

function drawRewardMap() {
  const overlay = cursor === null ? null : crosshair(cursor);
  drawMap($("reward-map"), reward, -1, 1, { signed: true, overlay });
  let plus = 0, minus = 0;
  for (const value of reward) { plus += value > 0; minus += value < 0; }
  label("reward-map", `Reward: +1 in ${plus} cells, −1 in ${minus} cells` + (cursor === null ? "" : `; brush at ${place(cursor)}`));
}

function paintAround(cell) {
  const radius = Number($("width").value) / 2, value = Number($("brush").value);
  const row = Math.floor(cell / columns), column = cell % columns, reach = Math.ceil(radius);
  for (let i = Math.max(0, row - reach); i <= Math.min(rows - 1, row + reach); i++)
    for (let j = Math.max(0, column - reach); j <= Math.min(columns - 1, column + reach); j++)
      if ((i - row) ** 2 + (j - column) ** 2 <= radius ** 2 && arrays.states[i * columns + j]) reward[i * columns + j] = value;
  rewardChanged();
}

function paintAlong(from, to) {  // A quick pointer leaves no gaps.
  const row = Math.floor(from / columns), column = from % columns;
  const down = Math.floor(to / columns) - row, across = to % columns - column;
  const count = Math.max(1, Math.abs(down), Math.abs(across));
  for (let i = 1; i <= count; i++)
    paintAround((row + Math.round(down * i / count)) * columns + column + Math.round(across * i / count));
}

function rewardChanged() { forget(); ask("reward"); }
function forget() { cache.value = null; cache.drawnReward = false; }

/* ---- Asking for drawings: at most one of each a frame ---- */

const asked = new Set();
const DRAW = { rows: drawRows, components: drawComponents, coverage: drawCoverage, reward: drawReward, spectrum: drawSpectrum };

function ask(...names) {
  if (asked.size === 0) requestAnimationFrame(drawAsked);
  names.forEach((name) => asked.add(name));
  keepAddress();
}

function drawAsked() {
  const names = [...asked];
  asked.clear();
  names.forEach((name) => DRAW[name]());
}

function setD(d) {
  const start = performance.now();
  shown.d = Math.min(K, Math.max(1, d));
  document.querySelectorAll(".d").forEach((slider) => { slider.value = shown.d; });
  const names = shown.features < 0 ? ["rows", "spectrum", "reward"] : ["rows", "spectrum"];
  // At once: the slider's answer is what is timed.
  names.forEach((name) => DRAW[name]());
  keepAddress();
  timings.slider.push(performance.now() - start);
}

function setStep(step) {
  shown.step = step;
  ask(...(shown.features >= 0 ? ["components", "reward"] : ["components"]));
}

function setState(state) {
  if (state === shown.state) return;
  shown.state = state;
  ask("rows");
}

/* ---- Export ---- */

function download(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function pngOf(id) {  // the section's canvases and captions, where they stand
  const section = $(id), frame = section.getBoundingClientRect(), scale = 2, margin = 12;
  const parts = [...section.querySelectorAll("h2, .said, figcaption, .bar span, .set > div span, .set > div small, #legend svg, #legend li, #spectrum-said, canvas")]
    .map((element) => ({ element, box: element.getBoundingClientRect() }))
    .filter(({ element, box }) => box.width > 0 && getComputedStyle(element).visibility !== "hidden");
  // Close the gaps that controls and paragraphs leave.
  parts.sort((one, other) => one.box.top - other.box.top);
  let bottom = parts[0].box.top, closed = parts[0].box.top;
  for (const part of parts) {
    closed += Math.max(0, part.box.top - bottom - 14);
    bottom = Math.max(bottom, part.box.bottom);
    part.y = part.box.top - closed + margin;
  }
  const sheet = document.createElement("canvas");
  sheet.width = scale * (frame.width + 2 * margin);
  sheet.height = scale * (bottom - closed + 2 * margin);
  const context = sheet.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, sheet.width, sheet.height);
  context.imageSmoothingEnabled = false;
  for (const { element, box, y } of parts) {
    const x = box.left - frame.left + margin;
    if (element instanceof HTMLCanvasElement) { context.drawImage(element, x, y, box.width, box.height); continue; }
    if (element instanceof SVGElement) {
      const stroke = element.firstChild;
      context.strokeStyle = stroke.getAttribute("stroke");
      context.lineWidth = 2.5;
      context.setLineDash((stroke.getAttribute("stroke-dasharray") || "").split(" ").filter(Boolean).map(Number));
      line(context, [[x, y + box.height / 2], [x + box.width, y + box.height / 2]]);
      continue;
    }
    const style = getComputedStyle(element), indent = element.querySelector("svg") ? 41 : 0;
    context.fillStyle = style.color;
    context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    context.textBaseline = "top";
    const height = parseFloat(style.lineHeight) || 1.3 * parseFloat(style.fontSize);
    wrapped(context, element.textContent, box.width + 2 - indent).forEach((text, i) => {
      const shift = style.textAlign === "center" ? (box.width - context.measureText(text).width) / 2 : 0;
      context.fillText(text, x + indent + shift, y + i * height);
    });
  }
  return new Promise((resolve) => sheet.toBlob(resolve, "image/png"));
}

function wrapped(context, text, width) {
  const found = [""];
  for (const word of text.trim().split(/(?<=[-\s])/)) {  // Lines may end after a hyphen.
    const longer = found[found.length - 1] + word;
    if (context.measureText(longer.trimEnd()).width <= width || !found[found.length - 1]) found[found.length - 1] = longer;
    else found.push(word);
  }
  return found.map((each) => each.trimEnd());
}

function csvOf(id) {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const write = (header, lines) => [header.map(quote), ...lines].map((cells) => cells.join(",")).join("\n") + "\n";
  const where = (cell) => [+xOf(cell).toPrecision(9), +yOf(cell).toPrecision(9)];
  const [x, y] = described.axes;
  if (id === "rows")
    return write([x, y, source.label, `rank ${shown.d}`], [...states].map((cell) => [...where(cell), cache.row[cell], cache.rank[cell]]));
  if (id === "reward") {
    const name = (best, cell) => (best && best[cell] >= 0 ? described.moves.names[best[cell]] : "");
    return write([x, y, "reward", "value", $("linear-title").textContent, "greedy action", "greedy action, linear"],
      [...states].map((cell) => [...where(cell), reward[cell], cache.value[cell], cache.linear[cell], name(cache.greedy, cell), name(cache.greedyLinear, cell)]));
  }
  if (id === "spectrum")
    return write(["component", "singular value", "energy captured", "noise floor"], described.singularValues.map((value, i) =>
      [i + 1, value, captured(i + 1), described.noiseFloor ? described.noiseFloor[i] ?? "" : ""]));
  if (id === "coverage") {
    const fits = runs.filter((run) => run.visits);
    return write([x, y, ...fits.map((run) => run.label)], [...states].map((cell) => [...where(cell), ...fits.map((run) => arrays[run.visits][cell])]));
  }
  const sets = [{ name: "true", maps: arrays.left, d: K }, ...runs.map((run) => ({ name: `${run.label} at ${run.steps[stepOf(run)]}`, maps: arrays[run.arrays[stepOf(run)]], d: run.cosines[0].length }))];
  const columnsShown = [];
  for (let k = shown.first; k < Math.min(K, shown.first + perPage); k++)
    for (const set of sets) if (k < set.d) columnsShown.push([`${set.name}: ${k + 1}`, set.maps, k]);
  return write([x, y, ...columnsShown.map(([name]) => name)],
    [...states].map((cell) => [...where(cell), ...columnsShown.map(([, maps, k]) => maps[k * N + cell])]));
}

/* ---- Listening ---- */

function cellAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const column = Math.min(columns - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * columns)));
  const row = Math.min(rows - 1, Math.max(0, Math.floor((1 - (event.clientY - box.top) / box.height) * rows)));
  return row * columns + column;
}

function moved(cell, event) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] || [];
  if (dx === undefined) return null;
  event.preventDefault();
  let column = cell % columns, row = Math.floor(cell / columns), reached = cell;
  for (let left = event.shiftKey ? 5 : 1; left > 0; left--) {
    do { column += dx; row += dy; } while (column >= 0 && column < columns && row >= 0 && row < rows && !arrays.states[row * columns + column]);
    if (column < 0 || column >= columns || row < 0 || row >= rows) break;
    reached = row * columns + column;
  }
  return reached;
}

function listen() {
  document.querySelectorAll(".d").forEach((slider) => slider.addEventListener("input", () => setD(Number(slider.value))));
  $("scale").addEventListener("change", () => { shown.root = $("scale").value === "root"; ask("rows"); });
  for (const canvas of document.querySelectorAll(".pick")) {
    const pick = (event) => setState(nearestState(cellAt(canvas, event)));
    canvas.addEventListener("pointermove", (event) => { if (!shown.pinned && event.pointerType !== "touch") pick(event); });
    canvas.addEventListener("pointerdown", (event) => {
      shown.pinned = event.pointerType !== "touch" && !(shown.pinned && nearestState(cellAt(canvas, event)) === shown.state);
      pick(event);
    });
    canvas.addEventListener("keydown", (event) => {
      const cell = moved(shown.state, event);
      if (cell !== null) setState(cell);
    });
  }
  const painted = $("reward-map");
  let last = null;
  painted.addEventListener("pointerdown", (event) => {
    painted.setPointerCapture(event.pointerId);
    cursor = null;
    last = cellAt(painted, event);
    paintAround(last);
  });
  painted.addEventListener("pointermove", (event) => {
    if (last === null) return;
    const cell = cellAt(painted, event);
    paintAlong(last, cell);
    last = cell;
  });
  for (const end of ["pointerup", "pointercancel"]) painted.addEventListener(end, () => { last = null; });
  painted.addEventListener("keydown", (event) => {
    if (event.key === " ") {
      event.preventDefault();
      cursor ??= shown.state;
      paintAround(cursor);
      return;
    }
    const cell = moved(cursor ?? shown.state, event);
    if (cell !== null) { cursor = cell; drawRewardMap(); }
  });
  $("goal").addEventListener("click", () => { paintGoal(); rewardChanged(); });
  $("clear").addEventListener("click", () => { reward.fill(0); rewardChanged(); });
  $("features").addEventListener("change", () => { shown.features = Number($("features").value); ask("reward"); });
  $("arrows").addEventListener("change", () => { shown.arrows = $("arrows").checked; ask("reward"); });
  $("earlier").addEventListener("click", () => { shown.first = Math.max(0, shown.first - perPage); ask("components"); });
  $("later").addEventListener("click", () => { shown.first = Math.min(K - 1, shown.first + perPage); ask("components"); });
  $("step").addEventListener("input", () => setStep(allSteps[Number($("step").value)]));
  let playing = null;
  $("play").addEventListener("click", () => {
    const stop = playing !== null;
    clearInterval(playing);
    playing = null;
    $("play").textContent = stop ? "play" : "stop";
    $("play").setAttribute("aria-pressed", String(!stop));
    if (stop) return;
    let index = Number($("step").value);
    if (index === allSteps.length - 1) index = -1;
    playing = setInterval(() => {
      index += 1;
      setStep(allSteps[index]);
      if (index === allSteps.length - 1) $("play").click();
    }, 350);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "[") setD(shown.d - 1);
    if (event.key === "]") setD(shown.d + 1);
    const change = { ",": -1, ".": 1 }[event.key];
    if (change && allSteps.length > 1)
      setStep(allSteps[Math.min(allSteps.length - 1, Math.max(0, Number($("step").value) + change))]);
  });
  document.addEventListener("click", async (event) => {
    const { png, csv } = event.target.dataset || {};
    const name = (id) => `${described.title.replace(/[^\w.-]+/g, "-").toLowerCase()}-${id}`;
    if (png) download(`${name(png)}.png`, await pngOf(png));
    if (csv) download(`${name(csv)}.csv`, new Blob([csvOf(csv)], { type: "text/csv" }));
  });
  window.addEventListener("hashchange", () => { decode(location.hash); showControls(); forget(); ask(...Object.keys(DRAW)); });
  let width = document.documentElement.clientWidth;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    redrawAll();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
}

function redrawAll() {
  document.querySelectorAll("canvas").forEach((canvas) => { canvas.wide = 0; });
  cache.drawnReward = false;
  layOutComponents();
  shown.first -= shown.first % perPage;
  ask(...Object.keys(DRAW));
}

function showControls() {
  document.querySelectorAll(".d").forEach((slider) => { slider.max = K; slider.value = shown.d; });
  $("scale").value = shown.root ? "root" : "linear";
  $("features").value = String(shown.features);
  $("arrows").checked = shown.arrows;
}

function describe() {
  $("title").textContent = described.title;
  const grid = `${columns} × ${rows} cells` + (states.length < N ? `, ${states.length.toLocaleString("en")} of them states` : "");
  const [x, y] = described.axes, [low, high] = [described.low, described.high];
  $("lead").textContent = `Ψ between ${grid}${discount === null ? "" : `, discount ${discount}`}${horizon === null ? "" : `, ${horizon.toLocaleString("en")} steps`}. ` +
    `On every map ${x} goes from ${short(low[0])} to ${short(high[0])} to the right, ${y} from ${short(low[1])} to ${short(high[1])} upwards.` +
    (states.length < N ? " Cells inside walls are grey." : "");
  const noise = source.samplingError === null ? "" : ` The store's own entries have a standard error of ${short(source.samplingError)}.`;
  const off = short(source.difference);
  $("source-note").textContent = {
    rows: `The rows are those of the store, rounded to 16 bits (root mean square ${off}).${noise}`,
    chain: `The rows are not stored but computed in this page: ${source.steps} steps of the one-step chain, whose probabilities are counts of ` +
      `${described.moves ? described.moves.points.toLocaleString("en") : ""} moves from each cell by each action, and the rest of the sum at rank ${K}. ` +
      `They differ from 100 rows of ${source.reference} by ${off} (root mean square over entries).${noise}`,
    rank: `This page holds Ψ at rank ${K} and no rows, since the matrix is too large for its rows and the moves of its environment are not known. ` +
      `Rank ${K} differs from the store by ${off} (root mean square over entries); errors are against the store.${noise}`,
  }[source.kind];
  $("source-title").textContent = `Ψ(s, ·), ${source.label}`;
  $("reward-note").textContent = moves || described.moves
    ? "The value is that of the policy behind Ψ, the sum of its row times the reward. An arrow is one step of improvement on that policy; cells where all actions are as good have none."
    : "The value is that of the policy behind Ψ. Greedy actions need the moves of the environment, which this page has for PuddleWorld alone (where no wall divides a cell).";
  $("arrows").closest("label").hidden = $("arrows-lead").hidden = !described.moves;
  $("components-lead").textContent = runs.length
    ? "Left singular vectors of the centred matrix, and what each run's first seed has learned, rotated within its span onto them (orthogonal Procrustes). Colours go from minus to plus the true component's largest magnitude; |cos| is the cosine with the true component."
    : "Left singular vectors of the centred matrix. Name training runs on the command line to see theirs below.";
  if (runs.length && allSteps.length <= 1)
    $("components-lead").textContent += " Each run has kept one step; runs of rlreps train record their features as they go, in the folder features, and then there is a slider here.";
  $("step-label").hidden = $("play").hidden = allSteps.length <= 1;
  $("step").max = Math.max(0, allSteps.length - 1);
  const facts = { grid, ...described.about };
  for (const [name, value] of Object.entries(facts)) {
    const term = document.createElement("dt"), detail = document.createElement("dd");
    term.textContent = name;
    detail.textContent = value;
    $("facts").append(term, detail);
  }
  const choose = (id, entries) => entries.forEach(([value, text]) => $(id).append(new Option(text, value)));
  choose("features", [[-1, "true components"], ...runs.map((run, i) => [i, run.label])]);
  const widths = [...new Set([1, 3, 7, 15].map((each) => Math.max(1, Math.round(each * columns / 100))))];
  choose("width", widths.map((each) => [each, each === 1 ? "1 cell" : `${each} cells`]));
  $("width").value = String(widths[Math.min(2, widths.length - 1)]);
}

async function start() {
  if (!("DecompressionStream" in window)) throw new Error("this browser is older than 2023 and cannot unpack the page's numbers");
  const now = Object.keys(described.arrays).filter((name) => !described.arrays[name].later);
  await Promise.all(now.map(load));
  states = Int32Array.from(arrays.states.keys()).filter((cell) => arrays.states[cell]);
  describe();
  decode(location.hash);
  showControls();
  layOutComponents();
  drawRows();
  drawSpectrum();
  timings.firstPaint = performance.now();
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  listen();
  for (const name of Object.keys(described.arrays).filter((each) => described.arrays[each].later)) await load(name);
  if (described.moves) readMoves();
  solved = true;
  cache.rowOf = -1;
  ["rows", "components", "coverage", "reward"].forEach((name) => DRAW[name]());
  timings.complete = performance.now();
}

window.explore = { described, shown, timings, cache, reward, encoded, csvOf, pngOf,
  row: wholeRow, rank: rankRow, value: wholeValue, states: () => states,
  ready: start().catch((error) => {
    $("trouble").hidden = false;
    $("trouble").textContent = `The page cannot be shown: ${error.message}.`;
    throw error;
  }) };
})();
