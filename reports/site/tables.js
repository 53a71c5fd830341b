// Tables of class "sortable": a click on a head sorts by it, and a field above a long table filters its rows.
"use strict";

const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i;
const FILTERED_ROWS = 6; // from so many rows on, a table gets a filter

function key(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = NUMBER.exec(text);
  return { text, number: number ? parseFloat(number[0]) : null };
}

// Numbers come before words, empty cells last, whichever way a table is sorted.
function compared(one, other, way) {
  if (!one.text || !other.text) return !one.text - !other.text;
  if (one.number !== null && other.number !== null && one.number !== other.number) return way * (one.number - other.number);
  if ((one.number === null) !== (other.number === null)) return one.number === null ? 1 : -1;
  return way * one.text.localeCompare(other.text, undefined, { numeric: true });
}

function sort(table, head) {
  const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: key(row, head.cellIndex) }));
  rows.sort((one, other) => compared(one.key, other.key, way));
  table.tBodies[0].append(...rows.map((each) => each.row));
}

function filter(table, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of table.tBodies[0].rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => text.includes(word));
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    if (head.hasAttribute("data-fixed")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(table, head));
    head.append(button);
  }
  if (table.tBodies[0].rows.length < FILTERED_ROWS) continue;
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "Filter rows by words";
  field.setAttribute("aria-label", field.placeholder);
  field.addEventListener("input", () => filter(table, field.value));
  table.parentElement.before(field);
}
