// A heading of a table sorts its rows: by numbers where a cell starts with one, else by text.
const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const plain = text => [...text].map(each => each === "⁻" ? "-" : digits.includes(each) ? digits.indexOf(each) : each).join("");
function valueOf(cell) {
  const text = cell.textContent.replace(/(\d),(?=\d{3})/g, "$1").replace(/−/g, "-");
  if (/^(∞|never)/.test(text)) return Infinity;
  if (text.startsWith("-∞")) return -Infinity;
  const found = text.match(/^(-?\d+(?:\.\d+)?)(?:·10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?/);
  return found ? Number(found[1]) * 10 ** Number(plain(found[2] ?? "0")) : text;
}
// What is missing comes last, whichever way the others are sorted; text comes behind numbers.
function compared(left, right, sign) {
  if (left === "–" || right === "–") return (left === "–") - (right === "–");
  if (typeof left !== typeof right) return sign * (typeof left === "number" ? -1 : 1);
  return sign * (left < right ? -1 : left > right ? 1 : 0);
}
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells];
  if (body.rows.length < 3) continue;
  headings.forEach((heading, column) => {
    if (!heading.textContent) return;
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach(each => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].map(row => [valueOf(row.cells[column]), row]);
      rows.sort(([left], [right]) => compared(left, right, up ? 1 : -1));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
