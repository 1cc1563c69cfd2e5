// @ts-check
// What the page holds: its description, its arrays, which are decoded here, and its cells.

/**
 * @typedef {Uint8Array | Int8Array | Uint16Array | Int16Array | Float32Array} Numbers
 *
 * @typedef {object} Packed How an array is stored in the page.
 * @property {keyof typeof TYPES} type
 * @property {boolean} later Whether it is read after the first drawing.
 * @property {number[]} [scales] Of maps: the value of one unit of each map.
 *
 * @typedef {object} Source Where the rows come from; see RowSource in rows.py.
 * @property {"rows" | "chain" | "rank" | "none"} kind
 * @property {string} label
 * @property {string} reference
 * @property {number} steps Number of exact steps of the chain.
 * @property {number} difference Root mean square difference from the reference.
 * @property {number | null} samplingError
 *
 * @typedef {object} Frames Pictures of the states on a sheet, if they are not in a plane; see Frames in page.py.
 * @property {number} width Of one frame.
 * @property {number} height
 * @property {number} across Frames in a line of the sheet.
 * @property {number} different Number of different frames.
 * @property {Record<string, string[]>} values
 * @property {number} total
 *
 * @typedef {object} Run What a run has learned; see PageArrays.add_run in page.py.
 * @property {string} label
 * @property {number} features
 * @property {number[]} steps Updates at which the page has components, rising.
 * @property {string[]} arrays Name of the components of each step.
 * @property {(number | null)[][]} cosines Of each step: |cosine| with each true component.
 * @property {[number[], (number | null)[]] | null} curve Updates and subspace distances.
 * @property {boolean} fitted Whether it is a fit of recorded data, which has no updates.
 * @property {string | null} visits Name of the visits of a fit's data.
 *
 * @typedef {object} Description
 * @property {string} title
 * @property {number} columns
 * @property {number} rows
 * @property {[number, number]} low
 * @property {[number, number]} high
 * @property {string[]} axes
 * @property {Frames | null} frames
 * @property {[number, number][][]} outlines
 * @property {Record<string, string>} about
 * @property {number | null} discount
 * @property {number | null} horizon
 * @property {boolean} countStart
 * @property {number} components
 * @property {number[]} singularValues
 * @property {number} totalEnergy
 * @property {(number | null)[] | null} noiseFloor
 * @property {boolean} puddleWorld Whether the states are places of PuddleWorld.
 * @property {Source} source
 * @property {{names: string[], arrows: [number, number][], points: number} | null} moves
 * @property {{sequential: string, signed: string, missing: string, series: string[]}} colours
 * @property {Record<string, Packed>} arrays
 * @property {Run[]} runs
 */

const TYPES = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, float32: Float32Array,
};

/**
 * Return the element of the page with an id.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} Type
 * @returns {T}
 */
export function get(id, Type) {
  const element = document.getElementById(id);
  if (!(element instanceof Type)) throw new Error(`expected an element ${id} of ${Type.name}`);
  return element;
}

/** @param {string} id */
export const $ = (id) => get(id, HTMLElement);

/** @type {Description} */
export const description = JSON.parse($("described").textContent ?? "");
export const { columns, rows, countStart, source, runs, frames } = description;
export const discount = description.discount ?? NaN, horizon = description.horizon ?? NaN;
/** Number of cells; every map and every row has one number for each, 0 where no state is. */
export const N = columns * rows;
/** What a map shows of a state. */
export const unit = frames ? "state" : "cell";
/** Number of components. */
export const K = description.components;

/** @type {Record<string, Numbers>} */
export const arrays = {};
/** The cells that are states, rising. */
export let states = new Int32Array(0);
/** The frames of the states. */
export const sheet = new Image();

/**
 * Load the arrays of the first drawing, or those that are read later.
 * @param {boolean} later
 */
export async function loadArrays(later) {
  for (const [name, packed] of Object.entries(description.arrays))
    if (packed.later === later) arrays[name] = await unpack(name, packed);
  states = Int32Array.from(arrays.states.keys()).filter((cell) => arrays.states[cell]);
  if (!frames || later) return;
  sheet.src = `data:image/png;base64,${$("array-sheet").textContent}`;
  await sheet.decode();
}

/**
 * @param {string} name
 * @param {Packed} packed
 */
async function unpack(name, { type, scales }) {
  const values = joinPlanes(await inflate(name), type);
  $(`array-${name}`).textContent = "";
  if (!scales) return values;
  for (let map = 0; map < scales.length; map++) {  // Integer arrays wrap around as they were made.
    const at = map * N;
    for (let i = at + columns; i < at + N; i++) values[i] += values[i - columns];
    for (let row = at; row < at + N; row += columns)
      for (let i = row + 1; i < row + columns; i++) values[i] += values[i - 1];
  }
  if (name === "rows") return values;  // Single precision would need twice the memory.
  const maps = new Float32Array(values.length);
  for (let map = 0; map < scales.length; map++)
    for (let i = map * N; i < (map + 1) * N; i++) maps[i] = values[i] * scales[map];
  return maps;
}

/** @param {string} name */
async function inflate(name) {
  const text = atob($(`array-${name}`).textContent ?? "");
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Join byte planes: the lowest bytes of all entries come before the next ones.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {keyof typeof TYPES} type
 * @returns {Numbers}
 */
function joinPlanes(bytes, type) {
  const Type = TYPES[type], size = Type.BYTES_PER_ELEMENT, count = bytes.length / size;
  const whole = new Uint8Array(bytes.length);
  for (let plane = 0; plane < size; plane++)
    for (let i = 0; i < count; i++) whole[i * size + plane] = bytes[plane * count + i];
  return new Type(whole.buffer);
}

/* ---- Cells ---- */

/**
 * Return the coordinates of a cell's centre, or the numbers that describe a frame.
 * @param {number} cell
 */
export function locate(cell) {
  if (frames) return description.axes.map((_, axis) => arrays.places[axis * N + cell]);
  const { low, high } = description;
  return [
    low[0] + (cell % columns + 0.5) / columns * (high[0] - low[0]),
    low[1] + (Math.floor(cell / columns) + 0.5) / rows * (high[1] - low[1]),
  ];
}

/** @param {number} cell */
export function describePlace(cell) {
  return locate(cell).map((at, axis) => {
    const name = description.axes[axis], text = frames?.values[name]?.[at];
    return text ?? `${name} = ${formatNumber(at, frames ? 6 : 3)}`;
  }).filter(Boolean).join(", ");
}

/**
 * Return the state nearest to a cell.
 * @param {number} cell
 */
export function nearestState(cell) {
  if (arrays.states[cell]) return cell;
  let best = states[0], least = Infinity;
  for (const other of states) {
    const distance = (other % columns - cell % columns) ** 2 +
      (Math.floor(other / columns) - Math.floor(cell / columns)) ** 2;
    if (distance < least) { least = distance; best = other; }
  }
  return best;
}

/* ---- Numbers as text ---- */

/**
 * @param {number | null} value
 * @param {number} digits
 */
export function formatNumber(value, digits = 3) {
  if (value === null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-4 ? value.toExponential(digits - 1) : String(+value.toPrecision(digits));
  return text.replace("-", "\u2212");
}

/** @param {number} share */
export function formatShare(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)}\u00a0%`;
}
