// Validates the rules while they are typed: the same messages as `sluicegate check`.

const form = document.querySelector("form[data-editor]");
const text = form?.querySelector("textarea");
const list = document.getElementById("problems");
const PAUSE_MS = 400;
let timer;
let sent = 0;
let others = null;

// The other files of the set, as they were when the page was opened.
async function files() {
  if (others === null) {
    const response = await fetch("/api/v1/rules");
    const { files } = await response.json();
    others = (files ?? []).filter((one) => one.name !== form.elements.file.value);
  }
  return [...others, { name: form.elements.file.value, text: text.value }];
}

function lineStart(line) {
  return text.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
}

function item(problem, kind) {
  const entry = document.createElement("li");
  entry.className = kind;
  const place = document.createElement("button");
  place.type = "button";
  const isHere = problem.file === form.elements.file.value;
  place.textContent = isHere ? `line ${problem.line}` : `${problem.file}, line ${problem.line}`;
  place.disabled = !isHere;
  place.addEventListener("click", () => {
    const start = lineStart(problem.line);
    text.focus();
    text.setSelectionRange(start, start + (text.value.slice(start).split("\n")[0] ?? "").length);
  });
  entry.append(place, ` ${problem.path ? problem.path + ": " : ""}${problem.message}`);
  return entry;
}

async function validate() {
  const mine = ++sent;
  const headers = { "content-type": "application/json" };
  try {
    const body = JSON.stringify({ files: await files() });
    const response = await fetch("/api/v1/rules/check", { method: "POST", headers, body });
    const result = await response.json();
    if (mine !== sent) return;
    const problems = result.problems ?? [];
    const warnings = result.warnings ?? [];
    list.replaceChildren(
      ...problems.map((one) => item(one, "problem")),
      ...warnings.map((one) => item(one, "warning")),
    );
    if (problems.length + warnings.length === 0) {
      const entry = document.createElement("li");
      entry.className = "good";
      entry.textContent = response.ok ? "Valid." : (result.error?.message ?? "Not validated.");
      list.append(entry);
    }
    text.setAttribute("aria-invalid", String(problems.length > 0));
  } catch (error) {
    if (mine === sent) list.textContent = "The node does not answer: not validated.";
  }
}

if (form && text && list) {
  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(validate, PAUSE_MS);
  });
  validate();
}
