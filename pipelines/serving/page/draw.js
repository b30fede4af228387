// Draw predictions as elements. Offsets count code points. Untrusted texts only become text nodes.
const COLOURS = 7;
const LANES = 6; // underlines of a word; more would cover the next line
const SVG = "http://www.w3.org/2000/svg";

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const number = (value) => value.toFixed(2);

// Draw all predictions of a task: the text with its marks, then what marks don't show.
export function draw(task, text, predictions) {
  const marks = marksOf(predictions);
  const colours = new Map([...new Set(marks.map((mark) => mark.label))].map((label, i) => [label, i % COLOURS]));
  const parts = [drawText(text, marks, colours, predictions.filter((one) => one.head))];
  if (task === "regression") parts.push(...predictions.map((one) => element("p", { class: "value" }, one.value.toPrecision(3))));
  else if (predictions.some((one) => one.trigger)) parts.push(frames(predictions, colours));
  else if (predictions.some((one) => one.mentions)) parts.push(clusters(predictions));
  else if (predictions.some((one) => one.head)) {
    parts.push(list("Relations", ["head", "relation", "tail", "score"], predictions.filter((one) => one.head)
      .map((one) => [one.head.text, one.category, one.tail.text, number(one.score)])));
  }
  const spans = predictions.filter((one) => one.start !== undefined || one.fragments);
  if (spans.length) {
    parts.push(list("Mentions", ["mention", "category", "characters", "score"], spans.map((one) => {
      const pieces = one.fragments ?? [one];
      return [pieces.map((p) => p.text).join(" … "), one.category, pieces.map((p) => `${p.start}–${p.end}`).join(", "), number(one.score)];
    })));
  }
  return parts;
}

// Scores by category, the highest first.
export function drawScores(scores, chosen) {
  const rows = [...scores].sort((a, b) => b.score - a.score).map(({ category, score }) => {
    const bar = element("span", { class: "bar", "aria-hidden": "true" }, element("i"));
    bar.firstChild.style.setProperty("--p", score);
    return element("li", {}, element("span", chosen.has(category) ? { class: "best" } : {}, category, chosen.has(category) ? " ✓" : ""), bar,
      element("span", { class: "n" }, number(score)));
  });
  return [element("h2", {}, "Scores by category"), element("ul", { class: "scores" }, ...rows)];
}

function marksOf(predictions) {
  const found = predictions.flatMap((one, i) => {
    if (one.fragments) return one.fragments.map((part) => ({ ...part, label: one.category }));
    if (one.head) return [one.head, one.tail].map((part) => ({ ...part, label: part.category }));
    if (one.trigger) return [{ ...one.trigger, label: one.category }, ...one.arguments.map((part) => ({ ...part, label: part.category }))];
    if (one.mentions) return one.mentions.map((part) => ({ ...part, label: `#${i + 1}` }));
    return one.start === undefined ? [] : [{ ...one, label: one.category }];
  });
  return [...new Map(found.map((mark) => [`${mark.start} ${mark.end} ${mark.label}`, mark])).values()];
}

// The underline of each mark, from the text down: marks that share a character have different ones.
export function lanes(marks) {
  const found = new Map();
  for (const mark of [...marks].sort((a, b) => a.end - a.start - (b.end - b.start) || a.start - b.start)) {
    const taken = new Set([...found].filter(([other]) => other.start < mark.end && mark.start < other.end).map(([, lane]) => lane));
    let lane = 0;
    while (taken.has(lane)) lane += 1;
    found.set(mark, lane);
  }
  return found;
}

function drawText(text, all, colours, relations) {
  const characters = [...text];
  const lane = lanes(all);
  const marks = all.filter((mark) => lane.get(mark) < LANES);
  const bounds = [...new Set([0, characters.length, ...marks.flatMap((mark) => [mark.start, mark.end])])].sort((a, b) => a - b);
  const box = element("div", { class: "text", dir: "auto" });
  bounds.slice(0, -1).forEach((start, i) => {
    const covering = marks.filter((mark) => mark.start <= start && start < mark.end).sort((a, b) => lane.get(a) - lane.get(b));
    let part = document.createTextNode(characters.slice(start, bounds[i + 1]).join(""));
    for (const mark of covering) {
      part = element("mark", { class: `c${colours.get(mark.label)}`, title: `${mark.label} ${number(mark.score)}`, "data-at": `${mark.start} ${mark.end}` }, part);
      part.style.setProperty("--lane", lane.get(mark));
    }
    box.append(part);
    for (const mark of covering.filter((one) => one.end === bounds[i + 1])) {
      box.append(element("span", { class: `tag c${colours.get(mark.label)}` }, mark.label));
    }
  });
  if (marks.length < all.length) box.append(element("p", { class: "hint" }, `and ${all.length - marks.length} more mentions that overlap these`));
  if (relations.length) {
    box.classList.add("linked");
    new ResizeObserver(() => arcs(box, relations)).observe(box);
  }
  return box;
}

// An arc from the head of each relation to its tail, above the words.
function arcs(box, relations) {
  box.querySelector("svg")?.remove();
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  svg.innerHTML = '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker>';
  const frame = box.getBoundingClientRect();
  const labels = [];
  const top = (mention) => {
    const place = box.querySelector(`mark[data-at="${mention.start} ${mention.end}"]`)?.getClientRects()[0];
    return place && { x: place.left + place.width / 2 - frame.left, y: place.top - frame.top };
  };
  for (const { head, tail, category } of relations) {
    const [from, to] = [top(head), top(tail)];
    if (!from || !to) continue;
    const height = Math.min(from.y, to.y) - 12 - Math.min(24, Math.abs(from.x - to.x) / 14);
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${from.x} ${from.y} C${from.x} ${height} ${to.x} ${height} ${to.x} ${to.y}`);
    path.setAttribute("marker-end", "url(#arrow)");
    const label = document.createElementNS(SVG, "text");
    const at = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 8 + (height * 3) / 4 + 3 };
    while (labels.some((other) => Math.abs(other.x - at.x) < 80 && Math.abs(other.y - at.y) < 13)) at.y -= 13;
    labels.push(at);
    label.setAttribute("x", Math.max(30, Math.min(frame.width - 30, at.x)));
    label.setAttribute("y", at.y);
    label.textContent = category;
    svg.append(path, label);
  }
  box.append(svg);
}

function list(title, columns, rows) {
  return element("div", {}, element("h2", {}, title), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    element("table", { class: "list" },
      element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", i > 1 ? { class: "n" } : {}, cell))))))));
}

function frames(events, colours) {
  const cards = events.map((event) => element("article", { class: `frame c${colours.get(event.category)}` },
    element("h3", {}, `${event.category}: ${event.trigger.text}`),
    element("dl", {}, ...event.arguments.flatMap((one) => [element("dt", {}, one.category), element("dd", {}, `${one.text} (${number(one.score)})`)]))));
  return element("div", {}, element("h2", {}, "Events"), element("div", { class: "frames" }, ...cards));
}

function clusters(found) {
  return list("Clusters", ["cluster", "mentions"], found.map((one, i) => [`#${i + 1}`, one.mentions.map((part) => part.text).join(", ")]));
}

// The structure table of one category, from the first token of a mention (row) to its last one (column).
export function drawTable(text, tokens, table) {
  const characters = [...text];
  const words = tokens.map(({ start, end }) => characters.slice(start, end).join(""));
  const scores = new Map(table.cells.map(([first, last, p]) => [`${first} ${last}`, p]));
  const rows = words.map((word, first) => element("tr", {}, element("th", { scope: "row" }, word), ...words.map((_, last) => {
    const p = scores.get(`${first} ${last}`) ?? 0;
    const outside = table.kind !== "relation" && last < first;
    if (outside) return element("td", { class: "off" });
    const cell = element("td", { title: `${words.slice(Math.min(first, last), Math.max(first, last) + 1).join(" ")}: ${number(p)}`, "aria-label": number(p) });
    cell.style.setProperty("--p", p);
    return cell;
  })));
  return element("table", { class: "heat", "aria-label": `Probabilities of ${table.category}` },
    element("thead", {}, element("tr", {}, element("td", { class: "off" }), ...words.map((word) => element("th", { scope: "col" }, word)))),
    element("tbody", {}, ...rows));
}
