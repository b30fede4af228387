// Long tables can be searched and sorted. Without this script they are plain tables.
"use strict";

const LONG = 100; // rows
const order = new Intl.Collator("en", { numeric: true });

for (const table of document.querySelectorAll("article table")) {
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  if (rows.length < LONG) continue;
  addSearch(table, rows);
  addSorting(table, rows);
}

function addSearch(table, rows) {
  const words = rows.map((row) => row.textContent.toLowerCase());
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("output");
  label.className = "table-search";
  input.type = "search";
  input.placeholder = "ner en permissive";
  label.append("Search ", input, count);
  // The theme wraps a table for scrolling once the page is loaded.
  table.before(label);
  const search = () => {
    const asked = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    rows.forEach((row, i) => {
      row.hidden = !asked.every((word) => words[i].includes(word));
      found += row.hidden ? 0 : 1;
    });
    count.textContent = `${found} of ${rows.length} rows`;
  };
  input.addEventListener("input", search);
  search();
}

function addSorting(table, rows) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].textContent.trim().replace(/(\d),(?=\d{3})/g, "$1");
      const sorted = [...rows].sort((a, b) => order.compare(key(a), key(b)));
      table.tBodies[0].append(...(down ? sorted.reverse() : sorted));
    });
  });
}
