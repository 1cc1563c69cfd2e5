// @ts-check
// Rows of Ψ, values of rewards and greedy actions: sums over steps of the chain and over components.

import { K, N, arrays, columns, countStart, description, discount, horizon, source, states } from "./data.js";

/**
 * @typedef {object} Moves One action's chances of moving between cells, as a sparse matrix.
 * @property {Int32Array} starts Of each cell: where its chances start.
 * @property {Int32Array} ends Cells that are reached.
 * @property {Float32Array} chances
 */

/**
 * Moves of each action; none if they are unknown or not yet read.
 * @type {Moves[]}
 */
export let moves = [];
let complete = false;

/** Use all arrays, once the later ones are loaded. */
export function completeSums() {
  const { points, names } = description.moves ?? { points: 1, names: [] };
  moves = names.map((_, action) => readMoves(arrays[`windows${action}`], arrays[`counts${action}`], points));
  complete = true;
}

/**
 * @param {ArrayLike<number>} windows Top, left, height and width of each cell's window.
 * @param {ArrayLike<number>} counts Moves to the cells of the windows.
 * @param {number} points Number of moves from each cell.
 * @returns {Moves}
 */
function readMoves(windows, counts, points) {
  const starts = new Int32Array(N + 1);
  let size = 0;
  for (let at = 0; at < counts.length; at++) size += Number(counts[at] > 0);
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
}

/**
 * Compute masses · P, under the uniformly random policy.
 * @param {Float64Array} masses
 */
function stepForward(masses) {
  const to = new Float64Array(N);
  for (const { starts, ends, chances } of moves)
    for (let cell = 0; cell < N; cell++) {
      const mass = masses[cell] / moves.length;
      if (mass < 1e-13) continue;
      for (let i = starts[cell]; i < starts[cell + 1]; i++) to[ends[i]] += mass * chances[i];
    }
  return to;
}

/**
 * Compute P · values, under the uniformly random policy.
 * @param {Float64Array} values
 */
function stepBackward(values) {
  const to = new Float64Array(N);
  for (const { starts, ends, chances } of moves)
    for (let cell = 0; cell < N; cell++) {
      let sum = 0;
      for (let i = starts[cell]; i < starts[cell + 1]; i++) sum += chances[i] * values[ends[i]];
      to[cell] += sum / moves.length;
    }
  return to;
}

/* ---- Rows ---- */

/**
 * Compute a state's row of Ψ at rank d.
 * @param {number} state
 * @param {number} d
 */
export function computeRankRow(state, d) {
  const { left, right, task_means: tasks, state_means: means } = arrays;
  const row = new Float64Array(N);
  for (const cell of states) row[cell] = tasks[cell] + means[state];
  for (let i = 0; i < d; i++) {
    const weight = left[i * N + state], at = i * N;
    for (let cell = 0; cell < N; cell++) row[cell] += weight * right[at + cell];
  }
  return row;
}

/**
 * Compute a state's row from steps of the chain, and the rest of the sum at rank K.
 * @param {number} state
 */
function solveRow(state) {
  let reached = new Float64Array(N), weight = 1;
  const row = new Float64Array(N);
  reached[state] = 1;
  for (let term = 0; term < Math.min(source.steps, horizon); term++) {
    const next = stepForward(reached), counted = countStart ? reached : next;
    for (let i = 0; i < N; i++) row[i] += weight * counted[i];
    weight *= discount;
    reached = next;
  }
  if (horizon <= source.steps) return row;
  weight *= shareOfRest();
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

/** Scale the sum at rank K, which has a few terms more than the exact steps leave. */
function shareOfRest() {
  return (1 - discount ** (horizon - source.steps)) / (1 - discount ** horizon);
}

/** @param {number} state */
function readRow(state) {
  const number = states.indexOf(state), [whole, scales] = storedRows();
  return Float64Array.from(whole.subarray(number * N, (number + 1) * N), (v) => v * scales[number]);
}

/** @returns {[import("./data.js").Numbers, number[]]} */
function storedRows() {
  return [arrays.rows, description.arrays.rows.scales ?? []];
}

/**
 * Compute a state's row of Ψ, as exactly as the page can.
 * @param {number} state
 */
export function computeRow(state) {
  if (source.kind === "rank" || !complete) return computeRankRow(state, K);
  return source.kind === "rows" ? readRow(state) : solveRow(state);
}

/**
 * Return the energy of a state's centred row that d components leave, if the page has no rows.
 * @param {number} state
 * @param {number} d
 */
export function energyLeft(state, d) {
  let energy = arrays.row_energies[state];
  for (let i = 0; i < d; i++) energy -= (arrays.left[i * N + state] * description.singularValues[i]) ** 2;
  return Math.max(energy, 0);
}

/**
 * Return the share of the matrix's energy in the leading d components.
 * @param {number} d
 */
export function energyShare(d) {
  let sum = 0;
  for (let i = 0; i < d; i++) sum += description.singularValues[i] ** 2;
  return sum / description.totalEnergy;
}

/* ---- Values ---- */

/**
 * Compute Ψ at rank K times a reward.
 * @param {Float64Array} reward
 */
function computeRankValue(reward) {
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

/**
 * Compute Ψ times a reward, as exactly as the page can.
 * @param {Float64Array} reward
 */
export function computeValue(reward) {
  if (source.kind === "rank" || !complete) return computeRankValue(reward);
  let values = new Float64Array(N);
  if (source.kind === "rows") {
    const [whole, scales] = storedRows();
    const painted = [...reward.keys()].filter((i) => reward[i]);
    states.forEach((state, number) => {
      let sum = 0;
      for (const i of painted) sum += whole[number * N + i] * reward[i];
      values[state] = sum * scales[number];
    });
    return values;
  }
  if (horizon > source.steps) {
    const share = shareOfRest();
    values = computeRankValue(reward).map((value) => share * value);
  }
  for (let term = 0; term < Math.min(source.steps, horizon); term++) {
    if (countStart) values = stepBackward(values);
    for (let i = 0; i < N; i++) values[i] = reward[i] + discount * values[i];
    if (!countStart) values = stepBackward(values);
  }
  return values;
}

/**
 * Choose the best action of each cell, -1 where all are as good.
 * @param {Float64Array} reward
 * @param {Float64Array} values
 */
export function chooseActions(reward, values) {
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

/* ---- Linear functions ---- */

/**
 * Orthonormalise a constant and the leading maps, in this order: Gram and Schmidt, twice.
 * @param {ArrayLike<number>} maps
 * @param {number} count
 */
export function orthonormalise(maps, count) {
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

/**
 * Sum a constant and d features with their weights.
 * @param {number[]} weights
 * @param {Float64Array[]} basis
 * @param {number} d
 */
export function combine(weights, basis, d) {
  const sum = new Float64Array(N);
  for (let k = 0; k <= d; k++) {
    const weight = weights[k], feature = basis[k];
    for (let i = 0; i < N; i++) sum[i] += weight * feature[i];
  }
  return sum;
}

/**
 * @param {Float64Array} one
 * @param {Float64Array} other
 */
export function subtract(one, other) {
  const difference = new Float64Array(N);
  for (const cell of states) difference[cell] = one[cell] - other[cell];
  return difference;
}

/**
 * @param {Float64Array} one
 * @param {Float64Array} other
 */
export function dot(one, other) {
  let sum = 0;
  for (let i = 0; i < N; i++) sum += one[i] * other[i];
  return sum;
}

/** @param {Float64Array} map */
export function norm(map) {
  return Math.sqrt(dot(map, map));
}
