// The form, its link, and its requests.
import { draw, drawScores, drawTable, element } from "./draw.js";

const $ = (id) => document.getElementById(id);
const SHOWN = 60; // tokens of a heat map
const NARROW = 832; // pixels, as in style.css: results are below the form
const LABELS = ["classification", "multilabel", "pair", "choice"];

// What the field of names means for a task, and how one line of it is read.
const NAMES = {
  relation: ["Relations", "One per line, such as “lives in: person: place”, or only a name."],
  event: ["Events", "One per line with its roles, such as “attack: attacker, target”."],
  qa: ["Questions", "One per line."],
  regression: ["Scale", "The numbers of the scale, one per line."],
  other: ["Categories", "One per line, in plain words."],
};

const EXAMPLES = [
  ["People and places", { task: "ner", text: "Marie Curie moved from Warsaw to Paris in 1891.", names: "person\nplace\norganisation\ndate" }],
  ["Nested", { task: "ner", overlap: "nested", text: "The University of Ostrava Press printed her first book.", names: "organisation\nplace\nperson" }],
  ["Topic", { task: "classification", text: "Shares of Quillfen fell by a tenth on Monday after a weak forecast.", names: "business\nsport\nweather\npolitics" }],
  ["Entailment", { task: "pair", text: "Rain is expected in Ostrava all week.", pair: "It will be dry in Ostrava.", names: "entailment\nneutral\ncontradiction" }],
  ["Relations", { task: "relation", text: "Ada Marlow joined Quillfen, which has its seat in Ostrava.", names: "works for: person: organisation\nlocated in: organisation: place" }],
  ["Events", { task: "event", text: "Quillfen hired Ada Marlow in May and sold its Ostrava plant to Northwind.", names: "hiring: employer, employee\nsale: seller, buyer, object" }],
  ["Question", { task: "qa", text: "The bridge was built in 1904 by Zora Lind, an engineer from Ostrava.", names: "Who built the bridge?\nWhen was it built?" }],
  ["Who is who", { task: "coref", text: "Ada Marlow left the office because she was tired.", names: "" }],
];

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const split = (text, mark) => text.split(mark).map((part) => part.trim()).filter(Boolean);

let latest; // the newest request, whose answer is shown

// The values of the form, which a link contains.
function values() {
  const found = {};
  for (const id of ["task", "text", "pair", "names", "types", "instruction", "threshold", "overlap"]) if ($(id).value) found[id] = $(id).value;
  if ($("discontinuous").checked) found.discontinuous = true;
  return found;
}

function fill(given) {
  for (const id of ["text", "pair", "names", "types", "instruction", "threshold"]) $(id).value = given[id] ?? "";
  $("task").value = given.task ?? "ner";
  $("overlap").value = given.overlap ?? "highest";
  $("discontinuous").checked = Boolean(given.discontinuous);
  suit();
}

// Show the fields that the task has.
function suit() {
  const task = $("task").value;
  for (const field of document.querySelectorAll("[data-for]")) field.hidden = !field.dataset.for.split(" ").includes(task);
  $("names-field").hidden = task === "coref";
  const [label, hint] = NAMES[task] ?? NAMES.other;
  $("names-label").textContent = label;
  $("names-hint").textContent = hint;
}

// Relations or events by name. JSON would keep only the last of those that share a name.
function byName(entries) {
  const found = new Map();
  for (const [name, value] of entries) {
    if (found.has(name)) throw new Error(`“${name}” is given twice; give each name once`);
    found.set(name, value);
  }
  return Object.fromEntries(found);
}

// The request to the server, without the text.
function question({ task, names = "", types = "", instruction, threshold, overlap, discontinuous }) {
  const asked = { task, overlap };
  const given = lines(names);
  if (task === "relation") {
    asked.relations = byName(given.map((line) => { const [name, ...ends] = split(line, ":"); return [name, ends.length ? ends : null]; }));
    asked.categories = lines(types);
  } else if (task === "event") {
    asked.events = byName(given.map((line) => { const [name, roles = ""] = split(line, ":"); return [name, split(roles, ",")]; }));
  } else if (task !== "coref") asked.categories = given;
  if (instruction) asked.instruction = instruction;
  if (threshold) asked.threshold = Number(threshold);
  if (discontinuous && task === "ner") asked.discontinuous = true;
  return asked;
}

async function ask(path, body) {
  const headers = body ? { "content-type": "application/json" } : {};
  if ($("key").value) headers.authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const content = await answer.json();
  if (answer.ok) return content;
  if (answer.status === 401) { $("more").open = true; $("key").focus(); }
  throw new Error(content.error);
}

async function predict() {
  const given = values();
  $("predict").disabled = true;
  $("error").hidden = true;
  $("status").textContent = "Predicting …";
  const began = performance.now();
  const hasPair = given.pair && !document.querySelector("#pair").closest("[data-for]").hidden;
  const mine = { text: given.text ?? "", ...(hasPair ? { pair: given.pair } : {}) };
  latest = mine;
  try {
    history.replaceState(null, "", `#${encode(given)}`);
    Object.assign(mine, question(given));
    const { text, pair, ...asked } = mine;
    const answer = await ask("/v1/predict", { texts: [text], ...(hasPair ? { pairs: [pair] } : {}), ...asked });
    const [predictions] = answer.results;
    const parts = LABELS.includes(given.task) ? await scores(mine, predictions) : draw(given.task, text, predictions);
    if (mine !== latest) return; // a newer request is shown
    $("drawn").replaceChildren(...parts);
    $("json").textContent = JSON.stringify(answer, null, 1);
    $("raw").hidden = false;
    $("tables").hidden = LABELS.includes(given.task) || given.task === "regression";
    const seconds = ((performance.now() - began) / 1000).toFixed(2);
    const found = predictions.length === 1 ? "1 prediction" : `${predictions.length} predictions`;
    $("status").textContent = `${found} in ${seconds} s`;
    if ($("tables").open) await heat();
    if (innerWidth < NARROW) $("results").scrollIntoView();
  } catch (error) {
    if (mine !== latest) return;
    $("status").textContent = "";
    $("drawn").replaceChildren();
    $("tables").hidden = $("raw").hidden = true;
    $("error").textContent = error.message;
    $("error").hidden = false;
  } finally {
    if (mine === latest) $("predict").disabled = false;
  }
}

// Scores of all categories, if the model has them; a model that points at spans scores only the chosen ones.
async function scores(asked, predictions) {
  const chosen = new Set(predictions.map((one) => one.category));
  let all = predictions;
  try {
    all = (await ask("/v1/tables", asked)).tables.map((table) => ({ category: table.category, score: table.anchor }));
  } catch { /* the predictions have scores of their own */ }
  return drawScores(all, chosen);
}

async function heat() {
  const mine = latest;
  try {
    const { tokens, tables } = await ask("/v1/tables", mine);
    if (mine !== latest) return;
    const choice = element("select", { id: "table", "aria-label": "Category of the table" }, ...tables.map((table, i) => element("option", { value: i }, table.category)));
    const region = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heat map" });
    const show = () => region.replaceChildren(drawTable(mine.text, tokens.slice(0, SHOWN), tables[Number(choice.value)]));
    choice.addEventListener("change", show);
    const left = tokens.length > SHOWN ? ` The first ${SHOWN} of ${tokens.length} tokens are shown.` : "";
    const hint = `Rows are first tokens, columns are last tokens; the stronger the colour, the likelier the cell.${left}`;
    $("heat").replaceChildren(choice, element("p", { class: "hint" }, hint), region);
    show();
  } catch (error) {
    if (mine === latest) $("heat").replaceChildren(element("p", {}, error.message));
  }
}

// A link has its request after the #, which a browser does not send to the server.
function encode(given) {
  const bytes = new TextEncoder().encode(JSON.stringify(given));
  const characters = Array.from(bytes, (byte) => String.fromCharCode(byte)); // too many to be arguments of one call
  return btoa(characters.join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function decode(hash) {
  const bytes = Uint8Array.from(atob(hash.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  return JSON.parse(new TextDecoder().decode(bytes));
}

async function describe() {
  try {
    const { model, ready, tasks } = await ask("/v1/model");
    if (!$("task").options.length) {
      $("task").append(...tasks.map((task) => element("option", {}, task)));
      $("task").value = "ner";
      suit();
      open(); // a link fills in the task, so it waits for the tasks, which may need the API key
    }
    $("model").textContent = ready ? `Model: ${model}` : `Model: ${model}, which is being loaded …`;
    if (!ready) setTimeout(describe, 1000);
  } catch (error) {
    $("model").textContent = error.message;
  }
}

function open() {
  if (!location.hash) return;
  try {
    fill(decode(location.hash.slice(1)));
    predict();
  } catch {
    $("error").textContent = "The link is damaged; fill in the form instead.";
    $("error").hidden = false;
  }
}

$("examples").append(...EXAMPLES.map(([name, given]) => {
  const button = element("button", { type: "button", class: "quiet" }, name);
  button.addEventListener("click", () => { fill(given); predict(); });
  return button;
}));
$("task").addEventListener("change", suit);
$("form").addEventListener("submit", (event) => { event.preventDefault(); predict(); });
$("form").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit(); });
$("tables").addEventListener("toggle", () => { if ($("tables").open && latest) heat(); });
$("key").addEventListener("change", describe);
$("link").addEventListener("click", async () => {
  history.replaceState(null, "", `#${encode(values())}`);
  try {
    await navigator.clipboard.writeText(location.href);
    $("status").textContent = "The link is copied.";
  } catch {
    $("status").textContent = "The link is in the address bar.";
  }
});
window.addEventListener("hashchange", open);
suit();
await describe();
