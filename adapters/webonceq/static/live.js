"use strict";
// Brings the parts of a screen up to date. The server says by a stream that something has changed;
// the screen is then fetched, and its parts (data-part) are replaced by their ids. A part in which
// somebody types, has a form open, or has selected text, waits. Nothing happens while hidden.
(() => {
  const body = document.body, live = document.getElementById("live"), topic = body.dataset.live;
  const once = (form) => {
    for (const b of form.querySelectorAll("button")) b.disabled = true;
  };
  document.addEventListener("submit", (e) => {
    if (e.defaultPrevented || e.target.method !== "post") return;
    setTimeout(() => once(e.target)); // after the button's own value was taken
  });
  addEventListener("pageshow", () => { // a screen that comes back has its buttons
    for (const b of document.querySelectorAll("button[disabled]")) b.disabled = false;
  });
  const refused = document.querySelector(".refused[role=alert]");
  if (refused) refused.scrollIntoView({ block: "center" });
  if (!topic || !live) return;

  let stream = null, poll = 0, seen = Date.now(), wanted = body.dataset.version, shown = wanted, busy = false, gone = false, broken = false;

  const say = () => {
    const old = Math.round((Date.now() - seen) / 1000);
    const text = gone ? "gone" : old < 25 && !broken ? "live" : "stale for " + (old < 120 ? old + " s" : Math.round(old / 60) + " min");
    if (live.textContent !== text) live.textContent = text;
    live.classList.toggle("stale", text !== "live");
  };
  let down = null; // a click ends where it began, so what a finger is on stays
  for (const n of ["pointerdown", "pointerup", "pointercancel"]) addEventListener(n, (e) => { down = n === "pointerdown" ? e.target : null; }, true);
  const held = (part) => {
    if (down && part.contains(down)) return true;
    const at = document.activeElement;
    if (part.contains(at) && at !== document.body && !at.matches("a, summary, button")) return true;
    for (const f of part.querySelectorAll("input:not([type=hidden]), textarea, select")) {
      if (f.type === "checkbox" ? f.checked !== f.defaultChecked : f.value !== first(f)) return true;
    }
    const s = getSelection();
    return s && !s.isCollapsed && part.contains(s.anchorNode);
  };
  const first = (f) => {
    if (f.tagName !== "SELECT") return f.defaultValue;
    const o = [...f.options].find((o) => o.defaultSelected) || f.options[0];
    return o ? o.value : "";
  };
  const mark = (at) => {
    if (!at || at === document.body) return null;
    return { id: at.id, href: at.getAttribute("href"), text: at.textContent };
  };
  const put = (old, now) => {
    if (old.isEqualNode(now)) return;
    const at = old.contains(document.activeElement) ? mark(document.activeElement) : null;
    const open = [...old.querySelectorAll("details")].map((d) => d.open);
    now = document.importNode(now, true);
    now.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || d.open; });
    old.replaceWith(now);
    if (!at) return;
    const all = [...now.querySelectorAll("a, summary, button")];
    const to = all.find((e) => at.id && e.id === at.id) || all.find((e) => at.href && e.getAttribute("href") === at.href) || all.find((e) => e.textContent === at.text);
    if (to) to.focus({ preventScroll: true });
  };
  const fresh = async () => {
    if (busy || document.hidden) return;
    busy = true;
    const version = wanted;
    let ok = false;
    try {
      const r = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(20000) });
      if (r.status === 403 || r.status === 404) { gone = true; stop(); return; }
      if (!r.ok) return;
      const doc = new DOMParser().parseFromString(await r.text(), "text/html");
      let all = true;
      for (const old of document.querySelectorAll("[data-part]")) {
        const now = doc.getElementById(old.id);
        if (!now) continue;
        if (held(old)) all = false; else put(old, now);
      }
      const t = doc.querySelector(".who time"), mine = document.querySelector(".who time");
      if (t && mine) mine.replaceWith(document.importNode(t, true));
      seen = Date.now();
      ok = true;
      if (all) shown = doc.body.dataset.version;
    } catch { /* the network is away; the state says so */ } finally {
      busy = false;
      broken = !ok;
      say();
      if (wanted !== version) setTimeout(fresh, 250);
    }
  };
  const stop = () => {
    if (stream) stream.close();
    stream = null;
    clearInterval(poll);
    poll = 0;
  };
  const start = () => {
    if (stream || poll || document.hidden || gone) return;
    stream = new EventSource(body.dataset.events + "?live=" + encodeURIComponent(topic));
    stream.onopen = () => { broken = false; say(); };
    const heard = () => {
      if (wanted !== shown) return fresh();
      seen = Date.now();
      say();
    };
    stream.addEventListener("part", (e) => {
      wanted = JSON.parse(e.data).version;
      heard();
    });
    stream.addEventListener("beat", heard);
    stream.onerror = () => {
      broken = true;
      say();
      if (stream && stream.readyState === EventSource.CLOSED) { // too many look: ask by ourselves
        stream = null;
        if (!poll) poll = setInterval(fresh, 10000);
      }
    };
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return stop();
    start();
    fresh();
  });
  setInterval(say, 1000);
  start();
  say();
})();
