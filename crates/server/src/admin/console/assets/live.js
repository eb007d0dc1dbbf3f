// Regions with data-fragment follow the node: at each event their page is fetched again, and this
// region takes over what differs. Elements stay the same ones, so that focus and clicks are kept.

const status = document.querySelector("[data-connection]");
const regions = () => document.querySelectorAll("[data-fragment]");
let loading = false;

function show(text) {
  if (status && status.textContent !== text) status.textContent = text;
}

function adopt(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh.cloneNode(true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, index) => {
    if (index < before.length) adopt(before[index], child);
    else old.append(child.cloneNode(true));
  });
  before.slice(after.length).forEach((child) => child.remove());
}

async function refresh() {
  if (loading || document.hidden) return;
  loading = true;
  try {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "manual" });
    if (response.type === "opaqueredirect") {
      location.reload();
      return;
    }
    if (!response.ok) throw new Error(String(response.status));
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const region of regions()) {
      const fresh = page.getElementById(region.id);
      if (fresh) adopt(region, fresh);
      else region.remove();
    }
    show("Live.");
  } catch (error) {
    show("The node does not answer; the figures are old.");
  } finally {
    loading = false;
  }
}

if (regions().length > 0) {
  const events = new EventSource("/api/v1/events");
  events.addEventListener("tick", refresh);
  events.addEventListener("open", () => show("Live."));
  events.addEventListener("error", () => show("Connection lost; reconnecting."));
}
