// What the pages do in addition where scripts run: filters that apply as they are typed,
// parts that keep themselves up to date, countdowns, copying. Every page works without.
(() => {
  "use strict";
  document.documentElement.classList.add("js");

  // Times are written in UTC; the reader's own are shown on hover.
  const localise = (root) => {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime);
      if (!Number.isNaN(at.getTime())) t.title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    }
  };

  // A countdown: <time data-countdown datetime="…">.
  const span = (ms) => {
    const s = Math.max(0, Math.round(ms / 1000));
    const d = Math.floor(s / 86400), h = Math.floor((s % 86400) / 3600), m = Math.floor((s % 3600) / 60);
    const two = (n) => String(n).padStart(2, "0");
    if (d > 0) return `${d} d ${h} h ${two(m)} min`;
    if (h > 0) return `${h} h ${two(m)} min ${two(s % 60)} s`;
    if (m > 0) return `${m} min ${two(s % 60)} s`;
    return `${s} s`;
  };
  const tick = () => {
    for (const t of document.querySelectorAll("time[data-countdown]")) {
      t.textContent = span(new Date(t.dateTime).getTime() - Date.now());
    }
  };
  setInterval(tick, 1000);

  // Parts of a page that keep themselves up to date: an element with data-refresh, the
  // seconds between two looks, and an id. Nothing is replaced while somebody is in it.
  const busy = (region) => {
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && selection.anchorNode && region.contains(selection.anchorNode)) return true;
    const at = document.activeElement;
    return at !== null && at !== document.body && region.contains(at) && at.matches("input, select, textarea");
  };
  const opened = (region) => Array.from(region.querySelectorAll("details[open][id]"), (d) => d.id);
  let generation = 0;
  const load = async (url, ids) => {
    const mine = ++generation;
    const response = await fetch(url, { credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!response.ok || mine !== generation) return response.ok;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== generation) return true;
    for (const id of ids) {
      const old = document.getElementById(id), fresh = page.getElementById(id);
      if (!old || !fresh || old.isEqualNode(fresh)) continue;
      const open = opened(old);
      const focus = old.contains(document.activeElement) ? document.activeElement.id : "";
      localise(fresh);
      old.replaceWith(document.adoptNode(fresh));
      for (const d of open) document.getElementById(d)?.setAttribute("open", "");
      if (focus) document.getElementById(focus)?.focus();
    }
    tick();
    return true;
  };

  const live = document.getElementById("live");
  const paused = () => live !== null && !live.querySelector("input").checked;
  const showLive = () => live?.classList.toggle("on", !paused());
  live?.querySelector("input").addEventListener("change", showLive);
  if (live) live.hidden = false;
  showLive();

  let failures = 0;
  const poll = async () => {
    const regions = Array.from(document.querySelectorAll("[data-refresh][id]"));
    const seconds = Math.min(...regions.map((r) => Number(r.dataset.refresh) || 5));
    if (regions.length === 0) return;
    if (!document.hidden && !paused()) {
      const ids = regions.filter((r) => !busy(r)).map((r) => r.id);
      try {
        const ok = ids.length === 0 || (await load(location.href, ids));
        failures = ok ? 0 : failures + 1;
      } catch {
        failures++;
      }
    }
    setTimeout(poll, Math.min(60, seconds * 2 ** Math.min(failures, 4)) * 1000);
  };
  if (document.querySelector("[data-refresh]")) setTimeout(poll, 2000);

  // Filters that apply as they are changed: <form data-live="id of the region">.
  for (const form of document.querySelectorAll("form[data-live]")) {
    let timer = 0;
    const apply = async () => {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
      const url = new URL(form.action);
      url.search = query.toString();
      history.replaceState(null, "", url);
      try {
        await load(url, form.dataset.live.split(" "));
      } catch {
        form.submit();
      }
    };
    form.addEventListener("input", (event) => {
      if (event.target.closest("#live")) return;
      clearTimeout(timer);
      timer = setTimeout(apply, event.target.matches("select, input[type=checkbox]") ? 0 : 250);
    });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      apply();
    });
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    const text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.dataset.label ??= button.textContent;
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = button.dataset.label; }, 2000);
    } catch {
      getSelection().selectAllChildren(source);
    }
  });

  // A page that came as the answer to a form has an address to be read again from, so
  // that a reload does not send the form again.
  const home = document.querySelector("[data-address]");
  if (home) history.replaceState(null, "", home.dataset.address);

  // Two clicks are one.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  // An invalid form begins at what is wrong with it.
  document.querySelector("[aria-invalid=true]")?.focus();
  localise(document);
  tick();
})();
