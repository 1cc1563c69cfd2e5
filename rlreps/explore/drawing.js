// @ts-check
// Maps of cells, of the plane or of frames, and charts of curves on canvases.

import { N, arrays, columns, description, formatNumber, frames, rows, sheet, states, unit } from "./data.js";

/**
 * @typedef {object} Layout Where a canvas shows cells: line by line, from the top left.
 * @property {Int32Array} cells
 * @property {number} columns
 * @property {number} rows
 *
 * @typedef {(context: CanvasRenderingContext2D, width: number, height: number, layout: Layout) => void} Overlay
 */

/* ---- Colours ---- */

/** @param {string} base64 Red, green and blue of 256 colours. */
function readColours(base64) {
  const text = atob(base64), colours = new Uint32Array(256);
  const bytes = new Uint8Array(colours.buffer);
  for (let i = 0; i < 256; i++) {
    for (let part = 0; part < 3; part++) bytes[4 * i + part] = text.charCodeAt(3 * i + part);
    bytes[4 * i + 3] = 255;
  }
  return colours;
}
const SEQUENTIAL = readColours(description.colours.sequential), SIGNED = readColours(description.colours.signed);
const MISSING = (() => {
  const word = new Uint32Array(1), bytes = new Uint8Array(word.buffer);
  for (let part = 0; part < 3; part++)
    bytes[part] = parseInt(description.colours.missing.slice(1 + 2 * part, 3 + 2 * part), 16);
  bytes[3] = 255;
  return word[0];
})();

/**
 * Return the colour of a curve.
 * @param {number} index
 */
export function seriesColour(index) {
  const { series } = description.colours, colour = series[index % series.length];
  return colour === "#000000" ? textColour() : colour;
}

function textColour() { return getComputedStyle(document.body).color; }
function mutedColour() {
  return getComputedStyle(document.documentElement).getPropertyValue("--muted").trim() || "#666";
}

/* ---- Canvases ---- */

/** @param {HTMLCanvasElement} canvas */
export function contextOf(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
}

const picture = document.createElement("canvas");
let image = contextOf(picture).createImageData(1, 1);

/** @param {Layout} layout */
function pixelsOf(layout) {
  if (image.width !== layout.columns || image.height !== layout.rows) {
    picture.width = layout.columns;
    picture.height = layout.rows;
    image = contextOf(picture).createImageData(layout.columns, layout.rows);
  }
  return new Uint32Array(image.data.buffer);
}

/** @type {WeakMap<HTMLCanvasElement, {width: number, height: number}>} */
let sizes = new WeakMap();

/** Read the widths of canvases again when they are drawn. */
export function forgetSizes() { sizes = new WeakMap(); }

/**
 * Return a canvas's context and its size in the page's pixels. The width is read when the window
 * changes and not in between: reading makes the browser lay out.
 * @param {HTMLCanvasElement} canvas
 * @param {(width: number) => number} heightOf
 */
function prepare(canvas, heightOf) {
  const context = contextOf(canvas);
  let size = sizes.get(canvas);
  if (!size) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.max(1, canvas.clientWidth);
    size = { width, height: heightOf(width) };
    sizes.set(canvas, size);
    canvas.style.height = `${size.height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(size.height * ratio);
    context.setTransform(canvas.width / width, 0, 0, canvas.height / size.height, 0, 0);
  }
  return { context, ...size };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {[number, number][]} points
 */
export function drawLine(context, points) {
  context.beginPath();
  for (const [x, y] of points) context.lineTo(x, y);
  context.stroke();
}

/* ---- Layouts ---- */

/** Sides of a square of a frame's area, in pixels, and the height of a map by its width where they allow. */
const SMALLEST_FRAME = 28, LARGEST_FRAME = 96, FRAMES_AREA = 0.45;
/** On a phone, for maps that are only compared with the one above them. */
const SMALLEST_COMPARED = 20;
let order = Int32Array.from({ length: N }, (_, place) =>
  (rows - 1 - Math.floor(place / columns)) * columns + place % columns);

/**
 * Sort cells, the largest first.
 * @param {ArrayLike<number>} values
 */
function sortCells(values) { return states.slice().sort((one, other) => values[other] - values[one]); }

/**
 * Order the frames by values, or by number.
 * @param {ArrayLike<number> | null} values
 */
export function orderFrames(values) { order = values ? sortCells(values) : states; }

/**
 * Return the layout of a canvas: the plane, or as many frames in a line as are well seen.
 * @param {HTMLCanvasElement} canvas
 * @returns {Layout}
 */
export function layoutOf(canvas) {
  if (!frames) return { cells: order, columns, rows };
  const width = sizes.get(canvas)?.width ?? canvas.clientWidth;
  const compared = window.innerWidth <= 700 && !canvas.matches("#row-whole, #reward-map");
  const least = compared ? SMALLEST_COMPARED : SMALLEST_FRAME;
  const side = Math.min(LARGEST_FRAME, Math.max(least, width * Math.sqrt(FRAMES_AREA / N)));
  const across = Math.max(1, Math.floor(width / (side * Math.sqrt(frames.width / frames.height))));
  return { cells: order, columns: across, rows: Math.ceil(N / across) };
}

/**
 * Return the layout of the frames at both ends of a component, the greatest first.
 * @param {ArrayLike<number>} values
 * @returns {Layout}
 */
export function layOutEnds(values) {
  const sorted = sortCells(values), each = N >= 16 ? 8 : Math.min(4, N >> 1), across = Math.min(4, each);
  const cells = Int32Array.from([...sorted.subarray(0, each), ...sorted.subarray(N - each)]);
  return { cells, columns: across, rows: 2 * each / across };
}

/**
 * Draw the frames of a layout, each within the colour of its value.
 * @param {CanvasRenderingContext2D} context
 * @param {number} width
 * @param {number} height
 * @param {Layout} layout
 * @param {import("./data.js").Frames} sizes
 */
function drawFrames(context, width, height, layout, { width: wide, height: high, across }) {
  const w = width / layout.columns, h = height / layout.rows, border = Math.max(3, 0.1 * Math.min(w, h));
  context.imageSmoothingEnabled = w < wide;
  context.imageSmoothingQuality = "high";
  layout.cells.forEach((cell, place) => {
    const at = arrays.frames[cell], x = place % layout.columns * w, y = Math.floor(place / layout.columns) * h;
    context.drawImage(sheet, at % across * wide, Math.floor(at / across) * high, wide, high,
      x + border, y + border, w - 2 * border, h - 2 * border);
  });
}

/**
 * Draw the frame of a state as it is.
 * @param {HTMLCanvasElement} canvas
 * @param {number} cell
 * @param {import("./data.js").Frames} sizes
 */
export function drawFrame(canvas, cell, { width, height, across }) {
  canvas.width = width;
  canvas.height = height;
  const at = arrays.frames[cell];
  contextOf(canvas).drawImage(sheet, -(at % across) * width, -Math.floor(at / across) * height);
}

/* ---- Maps ---- */

/**
 * Draw values of cells, and the bar of their colours if the canvas has one.
 * @param {HTMLCanvasElement} canvas
 * @param {ArrayLike<number>} values
 * @param {number} low
 * @param {number} high
 * @param {object} options
 * @param {boolean} [options.signed] Whether colours go from minus to plus.
 * @param {boolean} [options.root] Whether colours go by the square root.
 * @param {Overlay | null} [options.overlay]
 * @param {number} [options.beyond] Value of the state's own cell, which may lie outside the colours.
 * @param {Layout} [options.layout]
 */
export function drawMap(canvas, values, low, high, options = {}) {
  const { signed = false, root = false, overlay, beyond, layout = layoutOf(canvas) } = options;
  const colours = signed ? SIGNED : SEQUENTIAL, scale = high > low ? 1 / (high - low) : 0;
  const inside = arrays.states;
  let below = false, above = false;
  const pixels = pixelsOf(layout);
  for (let pixel = 0; pixel < pixels.length; pixel++) {
    const cell = layout.cells[pixel];
    if (!inside[cell]) { pixels[pixel] = frames ? 0 : MISSING; continue; }
    let share = (values[cell] - low) * scale;
    below ||= share < -1e-3;
    above ||= share > 1.001;
    share = share > 0 ? (share < 1 ? share : 1) : 0;
    if (root) share = signed ? rootFromMiddle(share) : Math.sqrt(share);
    pixels[pixel] = colours[(share * 255 + 0.5) | 0];
  }
  contextOf(picture).putImageData(image, 0, 0);
  const shape = frames ? frames.height / frames.width * layout.rows / layout.columns : 1;
  const { context, width, height } = prepare(canvas, (width) => shape * width);
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, width, height);
  if (frames) drawFrames(context, width, height, layout, frames);
  drawOutlines(context, width, height, layout);
  overlay?.(context, width, height, layout);
  if (!canvas.id) return;
  const own = beyond !== undefined && (beyond > high || beyond < low) ? `; own ${unit} ${formatNumber(beyond)}` : "";
  const [least, most] = [below ? "≤ " : "", above && beyond === undefined ? "≥ " : ""];
  drawBar(canvas.id, least + formatNumber(low), most + formatNumber(high) + own, colours, root);
}

/**
 * Return the square root of the distance from the middle of [0, 1].
 * @param {number} share
 */
function rootFromMiddle(share) {
  const away = 2 * share - 1;
  return (1 + Math.sign(away) * Math.sqrt(Math.abs(away))) / 2;
}

/** @type {Overlay} */
function drawOutlines(context, width, height) {
  const [left, low] = description.low, [right, high] = description.high;
  const thin = width < 150 ? 0.6 : 1;
  /** @type {[number, string][]} */
  const strokes = [[2.6 * thin, "rgba(255, 255, 255, 0.45)"], [thin, "rgba(27, 27, 27, 0.85)"]];
  for (const [thickness, colour] of strokes) {
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    for (const line of description.outlines) {
      context.beginPath();
      for (const [x, y] of line)
        context.lineTo((x - left) / (right - left) * width, (high - y) / (high - low) * height);
      context.closePath();
      context.stroke();
    }
  }
}

/**
 * @param {string} id Of the map above the bar.
 * @param {string} low
 * @param {string} high
 * @param {Uint32Array} colours
 * @param {boolean} root
 */
function drawBar(id, low, high, colours, root) {
  const bar = document.querySelector(`[data-bar="${id}"]`);
  if (!bar) return;
  let strip = bar.querySelector("canvas");
  if (!strip) {
    strip = document.createElement("canvas");
    strip.width = 256;
    strip.height = 1;
    strip.setAttribute("aria-hidden", "true");
    bar.append(document.createElement("span"), strip, document.createElement("span"));
  }
  const drawn = `${root}${colours === SIGNED}`;
  if (strip.dataset.drawn !== drawn) {
    strip.dataset.drawn = drawn;
    const context = contextOf(strip), ramp = context.createImageData(256, 1);
    new Uint32Array(ramp.data.buffer).set(colours.map((_, i) => {
      const share = i / 255;
      const turned = !root ? share : colours === SIGNED ? rootFromMiddle(share) : Math.sqrt(share);
      return colours[Math.round(turned * 255)];
    }));
    context.putImageData(ramp, 0, 0);
  }
  bar.children[0].textContent = low;
  bar.children[2].textContent = high;
}

/**
 * Make the overlay that marks a cell.
 * @param {number} cell
 * @returns {Overlay}
 */
export function markCell(cell) {
  return (context, width, height, { cells, columns, rows }) => {
    const place = cells.indexOf(cell), w = width / columns, h = height / rows;
    const x = (place % columns + 0.5) * w, y = (Math.floor(place / columns) + 0.5) * h;
    for (const [thickness, colour] of /** @type {[number, string][]} */ ([[3.5, "#ffffff"], [1.5, "#1b1b1b"]])) {
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.beginPath();
      if (frames) context.rect(x - w / 2 + 1.5, y - h / 2 + 1.5, w - 3, h - 3);
      else context.arc(x, y, 6, 0, 2 * Math.PI);
      context.stroke();
    }
  };
}

/**
 * Make the overlay of arrows along the actions of cells.
 * @param {Int8Array} best
 * @returns {Overlay}
 */
export function drawActions(best) {
  const directions = description.moves?.arrows ?? [];
  return (context, width, height) => {
    const every = Math.max(1, Math.ceil(20 * Math.max(columns / width, rows / height)));
    /** @param {number} count */
    const first = (count) => Math.floor((count - (Math.floor(count / every) - 1) * every - 1) / 2);
    const size = Math.min(0.36 * every, Math.ceil(every / 2) - 0.5) * Math.min(width / columns, height / rows);
    context.lineCap = "round";
    /** @type {[number, string][]} */
    const strokes = [[3.4, "rgba(27, 27, 27, 0.7)"], [1.5, "#ffffff"]];
    for (const [thickness, colour] of strokes) {
      context.strokeStyle = colour;
      context.lineWidth = thickness;
      context.beginPath();
      for (let row = first(rows); row + every / 2 <= rows; row += every)
        for (let column = first(columns); column + every / 2 <= columns; column += every) {
          const action = best[row * columns + column];
          if (action < 0) continue;
          const [dx, dy] = directions[action];
          const x = (column + 0.5) / columns * width, y = (1 - (row + 0.5) / rows) * height;
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

/**
 * Return the least and the largest value of the states.
 * @param {ArrayLike<number>} map
 * @param {number} [except] A state that is left out.
 * @returns {[number, number]}
 */
export function findExtent(map, except) {
  let low = Infinity, high = -Infinity;
  for (const cell of states)
    if (cell !== except) { low = Math.min(low, map[cell]); high = Math.max(high, map[cell]); }
  return [low, high];
}

/* ---- Charts ---- */

export const DASHES = [[], [7, 3], [2, 3], [7, 3, 2, 3], [11, 3, 3, 3]];

/**
 * Draw curves over axes.
 * @param {HTMLCanvasElement} canvas
 * @param {object} contents
 * @param {[number, number | null][][]} contents.lines
 * @param {string} contents.x Label of the axis.
 * @param {string} contents.y
 * @param {[number, number]} contents.xRange
 * @param {[number, number]} contents.yRange
 * @param {boolean} [contents.logY]
 * @param {number[]} [contents.marks] Places of vertical lines.
 * @param {number[]} [contents.levels] Heights of horizontal, dashed lines.
 */
export function drawChart(canvas, { lines, x, y, xRange, yRange, logY = false, marks = [], levels = [] }) {
  const { context, width, height } = prepare(canvas, () => 256);
  const box = { left: 58, right: width - 24, top: 10, bottom: height - 40 };
  /** @param {number} v */
  const up = (v) => (logY ? Math.log10(v) : v);
  const [low, top] = yRange.map(up);
  /** @param {number} v */
  const atX = (v) => box.left + (v - xRange[0]) / (xRange[1] - xRange[0] || 1) * (box.right - box.left);
  /** @param {number} v */
  const atY = (v) => box.bottom - (up(v) - low) / (top - low || 1) * (box.bottom - box.top);
  context.clearRect(0, 0, width, height);
  context.font = "13px system-ui, sans-serif";
  context.fillStyle = context.strokeStyle = textColour();
  context.lineWidth = 1;
  context.setLineDash([]);
  context.strokeRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of logY ? chooseLogTicks(yRange) : chooseTicks(yRange)) {
    context.fillText(formatNumber(tick), box.left - 7, atY(tick));
    drawLine(context, [[box.left - 4, atY(tick)], [box.left, atY(tick)]]);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const tick of chooseTicks(xRange)) {
    context.fillText(tick.toLocaleString("en"), atX(tick), box.bottom + 6);
    drawLine(context, [[atX(tick), box.bottom], [atX(tick), box.bottom + 4]]);
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
  context.strokeStyle = mutedColour();
  for (const mark of marks) drawLine(context, [[atX(mark), box.top], [atX(mark), box.bottom]]);
  context.setLineDash([5, 4]);
  for (const level of levels) drawLine(context, [[box.left, atY(level)], [box.right, atY(level)]]);
  context.lineWidth = 2;
  lines.forEach((points, index) => {
    context.strokeStyle = seriesColour(index);
    context.setLineDash(DASHES[index % DASHES.length]);
    drawLine(context, points.flatMap(([a, b]) => (b === null || (logY && b <= 0) ? [] : [[atX(a), atY(b)]])));
  });
  context.restore();
}

/** @param {[number, number]} range */
function chooseTicks([low, high]) {
  const ticks = [];
  const raw = (high - low) / 5 || 1, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * ([1, 2, 5].find((lead) => lead * size >= raw) ?? 10);
  for (let tick = Math.ceil(low / step) * step; tick <= high + 1e-9 * step; tick += step)
    ticks.push(+tick.toPrecision(12));
  return ticks.filter((tick) => tick >= low * (1 - 1e-9) - 1e-12 && tick <= high * (1 + 1e-9));
}

/** @param {[number, number]} range */
function chooseLogTicks([low, high]) {
  const ticks = [], decades = Math.log10(high / low);
  const leads = decades > 2.5 ? [1] : decades > 1 ? [1, 3] : [1, 2, 3, 5, 7];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const lead of leads) ticks.push(lead * 10 ** power);
  return ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
}
